package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Optional;

/**
 * An attempt without a decision. It is a value; the call decides what to do with it.
 *
 * @param sent whether it may have reached the service
 * @param problem null if the service gave no reason
 * @param retryAfter when to try again; zero: the service did not say
 * @param cause null if there is none
 */
record Failure(Kind kind, String message, boolean sent, Problem problem, Duration retryAfter, Throwable cause)
        implements Answer, Outcome {
    /** Why there is no decision. */
    enum Kind {
        /** The service, or the client itself, says why. */
        PROBLEM,
        /** The answer is not ratelimitd's. */
        FOREIGN,
        /** The connection failed. */
        CONNECTION,
        /** The call's time is over. */
        TIMEOUT,
        /** Calls fail at once, because earlier ones failed. */
        OPEN,
        /** Too many calls wait. */
        FULL,
        /** The caller no longer waits. */
        ENDED,
        /** The client is closed. */
        CLOSED
    }

    static Failure of(Kind kind, boolean sent) {
        String message =
                switch (kind) {
                    case TIMEOUT -> "no answer: the time of the call is over";
                    case OPEN -> "no answer: requests failed several times in a row, and the service is being probed";
                    case FULL -> "no answer: too many calls wait";
                    case ENDED -> "the caller does not wait any more";
                    case CLOSED -> "the client is closed";
                    default -> throw new IllegalArgumentException(kind.name());
                };
        return new Failure(kind, message, sent, null, Duration.ZERO, null);
    }

    static Failure connection(String why, boolean sent, Throwable cause) {
        return new Failure(Kind.CONNECTION, "no answer: " + why, sent, null, Duration.ZERO, cause);
    }

    static Failure foreign(int status, String why, Duration retryAfter) {
        String message = "the answer is not ratelimitd's: status " + status + ", " + why;
        Duration wait = status == 503 ? retryAfter : Duration.ZERO;
        return new Failure(Kind.FOREIGN, message, true, null, wait, null);
    }

    static Failure ofProblem(Problem p, Duration retryAfter) {
        String where = p.field().map(field -> field + ": ").orElse("");
        String message = "status " + p.status() + ": " + where + p.detail();
        return new Failure(Kind.PROBLEM, message, true, p, retryAfter, null);
    }

    /** Returns the failure of a call that is not sent. */
    static Failure refused(String field, String detail) {
        Problem p = new Problem("about:blank", "Bad Request", 0, detail, Optional.of(field), Optional.empty());
        return new Failure(Kind.PROBLEM, field + ": " + detail, false, p, Duration.ZERO, null);
    }

    /** Returns whether there is no decision at all: a 503 of ratelimitd itself is a policy's on_store_error. */
    boolean nobodyDecided() {
        if (problem != null) {
            return problem.status() >= 500 && problem.status() != 503;
        }
        return kind != Kind.ENDED && kind != Kind.CLOSED;
    }

    /** Returns whether units count after this failure. */
    Recorded recorded(boolean leavesUnits) {
        if (!leavesUnits || !sent) {
            return Recorded.NO;
        }
        if (problem == null) {
            return Recorded.UNKNOWN;
        }
        return problem.recorded().orElse(problem.status() < 500 ? Recorded.NO : Recorded.UNKNOWN);
    }

    /** Returns whether units still count after a refund or a confirm with this failure; null: the units are unknown. */
    Recorded stillCounts() {
        if (problem == null || !sent) {
            return sent ? Recorded.UNKNOWN : Recorded.YES;
        }
        return problem.status() < 500 ? null : recorded(true);
    }
}
