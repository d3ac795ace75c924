package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.locks.ReentrantLock;

/**
 * One call until its caller has an answer, with all its attempts. It ends once, when there is an
 * answer, no further attempt helps, its time is over, or its caller leaves.
 */
abstract class Asking {
    /** The caller's result. It fails with a {@link CallException} only. */
    final CompletableFuture<Answer> result = new CompletableFuture<>();

    private final Clock clock;
    private final Tries tries;
    private final ScheduledFuture<?> timeout;
    private final ReentrantLock lock = new ReentrantLock();
    private Try current;
    /** Why the call ended without an answer; null: it has not. */
    private Failure.Kind over;
    /** The failure before the current pause; null: no pause. */
    private Failure pausedAfter;

    private Recorded recorded = Recorded.NO;

    /** A clock that also runs tasks later. */
    interface Clock {
        /** Runs task on a thread of the client after a while, unless the future is cancelled. */
        ScheduledFuture<?> after(Duration wait, Runnable task);
    }

    /** One attempt. Its answer completes, whatever happens, once {@code leave} is called. */
    interface Try {
        CompletableFuture<Answer> answer();

        void leave(Failure.Kind why);
    }

    Asking(Clock clock, Duration time, int retries) {
        this.clock = clock;
        this.tries = new Tries(retries, System.nanoTime() + time.toNanos());
        this.timeout = clock.after(time, () -> end(Failure.Kind.TIMEOUT));
    }

    /** Begins an attempt. */
    abstract Try begin();

    /** Returns whether units count after this failure; null: the units are unknown. */
    abstract Recorded recordedAfter(Failure failure);

    /** Returns whether it may be sent again after this attempt. */
    abstract boolean repeatableAfter(Recorded recorded);

    /** Returns the caller's result after a failure, or throws the exception. */
    abstract Answer giveUp(Failure failure, Recorded recorded);

    /** Makes the first attempt. */
    void start() {
        proceed(begin());
    }

    /** Continues with an attempt that has begun. */
    void proceed(Try next) {
        Failure.Kind ended;
        lock.lock();
        try {
            current = next;
            ended = over;
        } finally {
            lock.unlock();
        }
        if (ended != null) {
            next.leave(ended);
        }
        next.answer().whenComplete((answer, bug) -> {
            if (bug != null) {
                result.completeExceptionally(bug);
            } else if (answer instanceof Failure failure) {
                failed(failure);
            } else {
                timeout.cancel(false);
                result.complete(answer);
            }
        });
    }

    /** Ends the call before it has an answer. It may be called more than once, and after the end. */
    void end(Failure.Kind why) {
        Failure last;
        Try leaving;
        lock.lock();
        try {
            over = over == null ? why : over;
            last = pausedAfter;
            pausedAfter = null;
            leaving = current;
        } finally {
            lock.unlock();
        }
        if (last != null) {
            finish(last);
        } else if (leaving != null) {
            leaving.leave(why);
        }
    }

    private void failed(Failure failure) {
        boolean again;
        lock.lock();
        try {
            Recorded now = recordedAfter(failure);
            recorded = recorded == Recorded.UNKNOWN ? recorded : now; // an earlier attempt may still count
            Duration pause = over == null && repeatableAfter(now) ? tries.again(failure, System.nanoTime()) : null;
            again = pause != null;
            if (again) {
                pausedAfter = failure;
                clock.after(pause, this::resume);
            }
        } finally {
            lock.unlock();
        }
        if (!again) {
            finish(failure);
        }
    }

    private void resume() {
        boolean goesOn;
        lock.lock();
        try {
            goesOn = pausedAfter != null; // otherwise the call ended during the pause
            pausedAfter = null;
        } finally {
            lock.unlock();
        }
        if (goesOn) {
            start();
        }
    }

    private void finish(Failure failure) {
        timeout.cancel(false);
        try {
            result.complete(giveUp(failure, recorded));
        } catch (RuntimeException e) { // a CallException, or a bug that must not leave the caller waiting
            result.completeExceptionally(e);
        }
    }
}
