package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Counts how often a call is tried. It is for one thread at a time. */
final class Tries {
    /** An instance that is restarted is back after it, or another one has its address. */
    private static final Duration FIRST_WAIT = Duration.ofMillis(50);

    private static final Duration MAX_WAIT = Duration.ofSeconds(1);

    private final long until;
    private int left;
    private Duration wait = FIRST_WAIT;

    /**
     * Begins to count.
     *
     * @param until when the call's time is over, by {@link System#nanoTime}
     */
    Tries(int retries, long until) {
        this.left = retries;
        this.until = until;
    }

    /** Returns how long to wait before another try; null: there is none, or a failure such as this does not pass. */
    Duration again(Failure failure, long now) {
        Duration pause = waitAfter(failure);
        if (left == 0 || pause == null || pause.toNanos() >= until - now) {
            return null;
        }
        left--;
        wait = min(wait.multipliedBy(2), MAX_WAIT);
        return pause;
    }

    /** Returns as long as the service says, and longer by chance: callers that failed together come back apart. */
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
