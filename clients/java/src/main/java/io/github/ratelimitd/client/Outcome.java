package io.github.ratelimitd.client;

import java.time.Duration;

/** The outcome of a request: a reply, or a failure. */
sealed interface Outcome permits Outcome.Reply, Failure {
    /**
     * A reply.
     *
     * @param retryAfter zero: the service does not say
     * @param replayed whether it is the recorded answer to an earlier request
     * @param body null if it came in lines, which were consumed
     */
    record Reply(int status, Duration retryAfter, boolean replayed, byte[] body) implements Outcome {}
}
