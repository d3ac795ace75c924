package io.github.ratelimitd.client;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;

/** Allows calls without a decision if the client fails open, and always reports them. */
final class FailedOpen {
    private static final long LOG_INTERVAL = TimeUnit.SECONDS.toNanos(1);

    private final OnUnavailable choice;
    private final BiConsumer<Call, CallException> hook;
    private final System.Logger logger;
    private final AtomicLong calls = new AtomicLong();
    private final AtomicLong loggedAt = new AtomicLong(System.nanoTime() - LOG_INTERVAL);

    FailedOpen(OnUnavailable choice, BiConsumer<Call, CallException> hook, System.Logger logger) {
        this.choice = choice;
        this.hook = hook;
        this.logger = logger;
    }

    long count() {
        return calls.get();
    }

    /** Returns the caller's result instead of an exception, or throws that. */
    Answer insteadOf(CallException error, Call call, Failure failure) {
        if (choice != OnUnavailable.FAIL_OPEN || call.op() == Op.CONFIRM || !failure.nobodyDecided()) {
            throw error;
        }
        long total = calls.incrementAndGet();
        try {
            hook.accept(call, error);
        } catch (RuntimeException e) { // the call must be answered all the same
            logger.log(System.Logger.Level.ERROR, "ratelimitd: onFailedOpen failed", e);
        }
        long now = System.nanoTime();
        long last = loggedAt.get();
        if (now - last >= LOG_INTERVAL && loggedAt.compareAndSet(last, now)) {
            logger.log(
                    System.Logger.Level.ERROR,
                    "ratelimitd does not decide: calls are allowed without a limit (" + total + " so far; "
                            + error.getMessage() + ")");
        }
        return new Answer.Decided(Decision.failedOpen(call, error.recorded()));
    }
}
