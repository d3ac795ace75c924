package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Counts the attempts of a call. It is for one thread at a time. */
final class Tries {
    /** After it, a restarted instance is back, or another one has its address. */
    private static final Duration FIRST_WAIT = Duration.ofMillis(50);

    private static final Duration MAX_WAIT = Duration.ofSeconds(1);

    private final long until;
    private int left;
    private Duration wait = FIRST_WAIT;

    /**
     * Makes a counter.
     *
     * @param until the end of the call's time, by {@link System#nanoTime}
     */
    Tries(int retries, long until) {
        this.left = retries;
        this.until = until;
    }

    /** Returns how long to wait before another attempt; null: there is none, or the failure is permanent. */
    Duration again(Failure failure, long now) {
        Duration pause = waitAfter(failure);
        if (left == 0 || pause == null || pause.toNanos() >= until - now) {
            return null;
        }
        left--;
        wait = min(wait.multipliedBy(2), MAX_WAIT);
        return pause;
    }

    /** Returns the wait that the service says, and a random bit more, so that callers that failed together return separately. */
    private Duration waitAfter(Failure failure) {
        if (failure.kind() == Failure.Kind.CONNECTION) {
            return between(wait.dividedBy(2), wait);
        }
        boolean passes = failure.problem() == null || failure.problem().status() == 503;
        Duration least = failure.retryAfter();
        return passes && !least.isZero() ? between(least, least.multipliedBy(3).dividedBy(2)) : null;
    }

    private static Duration between(Duration least, Duration most) {
        return Duration.ofNanos(ThreadLocalRandom.current().nextLong(least.toNanos(), most.toNanos() + 1));
    }

    private static Duration min(Duration a, Duration b) {
        return a.compareTo(b) < 0 ? a : b;
    }
}
