package io.github.ratelimitd.client;

import java.time.Duration;

/** What became of a request: a reply, or a failure. */
sealed interface Outcome permits Outcome.Reply, Failure {
    /**
     * What came back.
     *
     * @param retryAfter zero: the service does not say
     * @param replayed whether it is the recorded answer to an earlier request
     * @param body null where it came in lines, which were taken
     */
    record Reply(int status, Duration retryAfter, boolean replayed, byte[] body) implements Outcome {}
}
