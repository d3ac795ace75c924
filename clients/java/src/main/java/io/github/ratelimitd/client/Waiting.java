package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/** One take that waits for room. */
final class Waiting implements Lines.Caller {
    /** The wait after a denial without one, by which two instances competed for the last unit. */
    private static final Duration MIN_PAUSE = Duration.ofMillis(10);
    /** The longest random wait, by which callers of several processes return separately. */
    private static final Duration MAX_JITTER = Duration.ofSeconds(1);

    /** The result. Once it completes, the caller has left the line. */
    final CompletableFuture<Decision> result = new CompletableFuture<>();

    private final Lines lines;
    private final Asking.Clock clock;
    private final String key;
    private final long deadline;
    private final Supplier<CompletableFuture<Decision>> take;
    private final Lock lock = new ReentrantLock();
    /** The take or the timer under way. */
    private Future<?> underWay;

    private Decision denial;
    /** Whether it is the first of its line. */
    private boolean first;
    /** Whether it has left because there is no room before its deadline. */
    private boolean late;
    /** Whether a take is under way, which may count. */
    private volatile boolean asking;

    Waiting(Lines lines, Asking.Clock clock, String key, Duration within, Supplier<CompletableFuture<Decision>> take) {
        this.lines = lines;
        this.clock = clock;
        this.key = key;
        this.take = take;
        deadline = System.nanoTime() + within.toNanos();
        result.whenComplete((decision, error) -> {
            stop();
            lines.leave(key, this);
        });
        goOnWith(clock.after(within, this::late));
        Lines.Reason reason = lines.enter(key, this);
        if (reason != null) {
            fail(reason);
        }
    }

    @Override
    public long deadline() {
        return deadline;
    }

    @Override
    public void turn() {
        lock.lock();
        try {
            first = true;
            if (late) {
                return;
            }
        } finally {
            lock.unlock();
        }
        stop();
        ask();
    }

    @Override
    public void late() {
        lock.lock();
        try {
            late = !first;
            if (first) {
                return;
            }
        } finally {
            lock.unlock();
        }
        fail(Lines.Reason.NO_ROOM);
    }

    /** Ends it on behalf of its caller. */
    void end(Failure.Kind why) {
        Recorded recorded = asking ? Recorded.UNKNOWN : Recorded.NO;
        result.completeExceptionally(CallException.of("take", recorded, Failure.of(why, asking)));
    }

    private void fail(Lines.Reason reason) {
        result.completeExceptionally(new NoRoomException(reason.message, Optional.ofNullable(denial)));
    }

    private void ask() {
        if (result.isDone()) {
            return;
        }
        asking = true;
        CompletableFuture<Decision> taken = take.get();
        goOnWith(taken);
        taken.whenComplete((decision, error) -> {
            asking = false;
            if (error != null) {
                result.completeExceptionally(error instanceof CompletionException ? error.getCause() : error);
            } else if (decision.allowed()) {
                result.complete(decision);
            } else {
                pause(decision);
            }
        });
    }

    private void pause(Decision denied) {
        denial = denied;
        if (denied.retryAfter().isEmpty()) {
            fail(Lines.Reason.NO_ROOM);
            return;
        }
        Duration wait = denied.retryAfter().get();
        long pause = Math.max(wait.toNanos(), MIN_PAUSE.toNanos());
        long left = deadline - System.nanoTime() - pause;
        if (left < 0) {
            fail(Lines.Reason.NO_ROOM);
            return;
        }
        lines.fullUntil(key, System.nanoTime() + pause);
        long jitter = Math.min(Math.min(pause / 10, MAX_JITTER.toNanos()), left / 2);
        goOnWith(clock.after(Duration.ofNanos(pause + ThreadLocalRandom.current().nextLong(jitter + 1)), this::ask));
    }

    private void goOnWith(Future<?> next) {
        lock.lock();
        try {
            underWay = next;
        } finally {
            lock.unlock();
        }
        if (result.isDone()) { // its caller has ended it
            next.cancel(false);
        }
    }

    private void stop() {
        Future<?> last;
        lock.lock();
        try {
            last = underWay;
            underWay = null;
        } finally {
            lock.unlock();
        }
        if (last != null) {
            last.cancel(false);
        }
    }
}
