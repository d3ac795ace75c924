package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Keeps a service that does not answer from using up the time of every call: after some failures in a row requests
 * fail at once, and one request at a time probes whether the service is back.
 *
 * <p>Time is an argument, in nanoseconds of {@link System#nanoTime}.
 */
final class Breaker {
    /**
     * The time without any answer that, besides the failures in a row, must pass before requests fail at once: calls
     * with little time may fail together while others are answered.
     */
    static final Duration SILENCE = Duration.ofMillis(500);

    private final int maxFailures;
    private final long probeInterval;
    private final Runnable onOpen;
    private final Runnable onClose;
    private final ReentrantLock lock = new ReentrantLock();
    private int failures;
    private boolean everAnswered;
    private long answeredAt;
    private boolean open;
    private long probeAt;
    private boolean probing;

    Breaker(int maxFailures, Duration probeInterval, Runnable onOpen, Runnable onClose) {
        this.maxFailures = maxFailures;
        this.probeInterval = probeInterval.toNanos();
        this.onOpen = onOpen;
        this.onClose = onClose;
    }

    /**
     * Returns whether a request may be made now. If so, one of {@link #answered}, {@link #failed}
     * and {@link #abandoned} must follow.
     */
    boolean admit(long now) {
        lock.lock();
        try {
            if (!open) {
                return true;
            }
            if (probing || now - probeAt < 0) {
                return false;
            }
            probing = true;
            return true;
        } finally {
            lock.unlock();
        }
    }

    /** Notes that the service answered a request, or some calls of one. */
    void answered(long now) {
        boolean closes;
        lock.lock();
        try {
            closes = open;
            everAnswered = true;
            answeredAt = now;
            failures = 0;
            probing = false;
            open = false;
        } finally {
            lock.unlock();
        }
        if (closes) {
            onClose.run();
        }
    }

    /** Notes that the service did not answer a request. */
    void failed(long now) {
        boolean opens = false;
        lock.lock();
        try {
            probing = false;
            failures++;
            boolean silent = !everAnswered || now - answeredAt >= SILENCE.toNanos();
            if (open) {
                probeAt = now + probeInterval;
            } else if (failures >= maxFailures && silent) {
                probeAt = now + probeInterval;
                open = true;
                opens = true;
            }
        } finally {
            lock.unlock();
        }
        if (opens) {
            onOpen.run();
        }
    }

    /** Notes that a request ended without information about the service. */
    void abandoned() {
        lock.lock();
        try {
            probing = false;
        } finally {
            lock.unlock();
        }
    }
}
