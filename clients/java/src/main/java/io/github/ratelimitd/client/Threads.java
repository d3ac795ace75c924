package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The threads of a client. They end by themselves some seconds after its last request, and do not keep the process alive. */
final class Threads implements Asking.Clock {
    private static final long IDLE_S = 10;

    private final ThreadPoolExecutor executor;
    private final ScheduledThreadPoolExecutor timer;

    Threads() {
        AtomicInteger number = new AtomicInteger();
        ThreadFactory factory = task -> {
            Thread thread = new Thread(task, "ratelimitd-client-" + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
        executor = new ThreadPoolExecutor(
                0, Integer.MAX_VALUE, IDLE_S, TimeUnit.SECONDS, new SynchronousQueue<>(), factory);
        timer = new ScheduledThreadPoolExecutor(1, factory);
        timer.setKeepAliveTime(IDLE_S, TimeUnit.SECONDS);
        timer.allowCoreThreadTimeOut(true);
        timer.setRemoveOnCancelPolicy(true);
    }

    Executor executor() {
        return executor;
    }

    /** Runs task on a thread of the pool, so that the timer's own thread never waits. */
    @Override
    public ScheduledFuture<?> after(Duration wait, Runnable task) {
        return timer.schedule(() -> executor.execute(task), wait.toNanos(), TimeUnit.NANOSECONDS);
    }
}
