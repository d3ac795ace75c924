package io.github.ratelimitd.client;

/** What a call gives while no ratelimitd answers. */
public enum OnUnavailable {
    /** An {@link UnavailableException}. */
    FAIL_CLOSED,
    /**
     * A {@link Decision} that allows and is {@link Decision#degraded}. It is for a service that is gone or late: what a
     * service that answers denies, or cannot decide by its policy's {@code on_store_error}, stands. Each such call is
     * counted ({@link RatelimitdClient#failedOpen}) and told ({@link RatelimitdClientBuilder#onFailedOpen}), and the log
     * has a line a second.
     */
    FAIL_OPEN
}
