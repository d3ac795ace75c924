package io.github.ratelimitd.client;

/** The result of calls while no ratelimitd answers. */
public enum OnUnavailable {
    /** An {@link UnavailableException}. */
    FAIL_CLOSED,
    /**
     * A {@link Decision} that allows and is {@link Decision#degraded}. It is for a service that is gone or late: an
     * answer of the service stands, even one by {@code on_store_error}. Each such call is counted
     * ({@link RatelimitdClient#failedOpen}) and reported ({@link RatelimitdClientBuilder#onFailedOpen}), and logged at
     * most once a second.
     */
    FAIL_OPEN
}
