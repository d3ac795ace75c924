package io.github.ratelimitd.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Lets simultaneous calls share requests. A lone call is sent at once. While some requests are
 * under way, further calls wait, and go as one group as soon as a request is back.
 *
 * <p>It decides which calls go together and when. How a group is sent is for {@code send}, which is never called under
 * the lock.
 */
final class Joiner {
    /** The most calls of a request. */
    static final int MAX_CALLS = 1000;
    /** The most bytes of a request's calls; a batch may have 1 MiB. */
    static final int MAX_SIZE = (1 << 20) - 64;
    /** The most requests under way while earlier ones are late. */
    static final int MAX_REQUESTS = 64;
    /** How long calls wait for a request to come back before another one goes. */
    private static final long PATIENCE_MS = 10;
    /** The most waiting calls: calls behind this many would not be answered in time. */
    private static final int MAX_WAITING = 1 << 16;
    /** The most calls of one policy and identifier in a request, because the service decides them one after the other. */
    private static final int MAX_ALIKE = 8;
    /** How many waiting calls are considered for a group, because many may be alike. */
    private static final int MAX_LOOKED_AT = 4 * MAX_CALLS;

    /** Runs a task after some milliseconds. */
    interface Timer extends BiConsumer<Runnable, Long> {}

    private final Function<Group, CompletableFuture<Void>> send;
    private final Timer timer;
    private final int requests;
    private final int maxCalls;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition idle = lock.newCondition();
    private final Set<Entry> waiting = new LinkedHashSet<>();
    /** Requests of waiting calls. */
    private int underWay;
    /** All requests. */
    private int running;
    private boolean armed;
    private boolean closed;

    /**
     * Makes a joiner.
     *
     * @param send settles all entries of a group. Its future completes when that is done, and never fails.
     * @param requests how many are under way before further calls wait
     * @param maxCalls of a request, at most {@link #MAX_CALLS}
     */
    Joiner(Function<Group, CompletableFuture<Void>> send, Timer timer, int requests, int maxCalls) {
        this.send = send;
        this.timer = timer;
        this.requests = requests;
        this.maxCalls = maxCalls;
    }

    /** One attempt of a call. */
    static final class Entry {
        final PreparedCall call;
        final CompletableFuture<Answer> settled = new CompletableFuture<>();
        /** The group with which it was sent; null: it was not sent. */
        private volatile Group group;

        private final AtomicBoolean isSettled = new AtomicBoolean();

        Entry(PreparedCall call) {
            this.call = call;
        }

        /** Gives the entry its answer, unless it has one. */
        void settle(Answer answer) {
            if (isSettled.compareAndSet(false, true)) {
                if (group != null) {
                    group.open.decrementAndGet();
                }
                settled.complete(answer);
            }
        }

        /** Settles an entry whose caller leaves. The effect on the request comes before the caller continues. */
        private void leave(Failure.Kind why) {
            if (isSettled.compareAndSet(false, true)) {
                if (group != null && group.open.decrementAndGet() == 0) {
                    group.abandoned.complete(null);
                }
                settled.complete(Failure.of(why, group != null));
            }
        }
    }

    /** Calls that go as one request. */
    static final class Group {
        final List<Entry> entries;
        /** Completes when no caller waits for the answer any longer. */
        final CompletableFuture<Void> abandoned = new CompletableFuture<>();

        private final AtomicInteger open;

        private Group(List<Entry> entries) {
            this.entries = entries;
            this.open = new AtomicInteger(entries.size());
            entries.forEach(entry -> entry.group = this);
        }
    }

    /** Sends a call, alone or with others. */
    void enter(Entry entry) {
        Group group = null;
        Failure refused = null;
        lock.lock();
        try {
            if (closed) {
                refused = Failure.of(Failure.Kind.CLOSED, false);
            } else if (waiting.size() >= MAX_WAITING) {
                refused = Failure.of(Failure.Kind.FULL, false);
            } else {
                waiting.add(entry);
                group = underWay < requests ? next() : null;
                arm();
            }
        } finally {
            lock.unlock();
        }
        if (refused != null) {
            entry.settle(refused);
        }
        run(group);
    }

    /** Sends calls as one request, for which no waiting call waits. */
    void sendTogether(List<Entry> entries) {
        Group group = new Group(entries);
        if (!bypass(() -> send.apply(group))) {
            entries.forEach(entry -> entry.settle(Failure.of(Failure.Kind.CLOSED, false)));
        }
    }

    /** Makes a request for which no waiting call waits; false: the client is closed. */
    boolean bypass(Supplier<CompletableFuture<Void>> request) {
        lock.lock();
        try {
            if (closed) {
                return false;
            }
            running++;
        } finally {
            lock.unlock();
        }
        request.get().whenComplete((done, error) -> {
            lock.lock();
            try {
                running--;
                checkIdle();
            } finally {
                lock.unlock();
            }
        });
        return true;
    }

    /** Settles an entry whose caller no longer waits. */
    void leave(Entry entry, Failure.Kind why) {
        lock.lock();
        try {
            waiting.remove(entry);
            checkIdle();
        } finally {
            lock.unlock();
        }
        entry.leave(why);
    }

    /** Refuses further calls, and waits until all earlier ones have answers. */
    void close() throws InterruptedException {
        lock.lock();
        try {
            closed = true;
            while (!isIdle()) {
                idle.await();
            }
        } finally {
            lock.unlock();
        }
    }

    private boolean isIdle() {
        return running == 0 && waiting.isEmpty();
    }

    private void checkIdle() {
        if (closed && isIdle()) {
            idle.signalAll();
        }
    }

    /** Sends groups as long as each is answered at once; after a later answer the next one is sent. */
    private void run(Group first) {
        for (Group group = first; group != null; ) {
            CompletableFuture<Void> sent = send.apply(group);
            if (!sent.isDone()) {
                sent.whenComplete((done, error) -> run(afterAnswer()));
                return;
            }
            group = afterAnswer();
        }
    }

    /** Notes that a request of waiting calls has come back, and returns the next group to send; null: none. */
    private Group afterAnswer() {
        lock.lock();
        try {
            underWay--;
            running--;
            Group group = underWay < requests ? next() : null;
            arm();
            checkIdle();
            return group;
        } finally {
            lock.unlock();
        }
    }

    /** Sends another request after a while in which none comes back. */
    private void arm() {
        if (armed || waiting.isEmpty()) {
            return;
        }
        armed = true;
        timer.accept(this::late, PATIENCE_MS);
    }

    private void late() {
        Group group;
        lock.lock();
        try {
            armed = false;
            group = underWay < Math.max(requests, MAX_REQUESTS) ? next() : null;
            arm();
        } finally {
            lock.unlock();
        }
        run(group);
    }

    /** Returns a group, which is under way from now on; null: no call waits. */
    private Group next() {
        List<Entry> entries = gather();
        if (entries.isEmpty()) {
            return null;
        }
        underWay++;
        running++;
        return new Group(entries);
    }

    /** Takes the calls that can share a request from the waiting ones. */
    private List<Entry> gather() {
        List<Entry> entries = new ArrayList<>();
        Map<PreparedCall.Target, Integer> alike = new HashMap<>();
        int size = 0;
        int looked = 0;
        for (Iterator<Entry> all = waiting.iterator(); all.hasNext() && looked < MAX_LOOKED_AT; looked++) {
            Entry entry = all.next();
            PreparedCall call = entry.call;
            boolean fits = entries.isEmpty() || size + call.operation.length + 1 <= MAX_SIZE;
            if (!fits || call.targets.stream().anyMatch(t -> alike.getOrDefault(t, 0) >= MAX_ALIKE)) {
                continue;
            }
            all.remove();
            entries.add(entry);
            size += call.operation.length + 1;
            call.targets.forEach(t -> alike.merge(t, 1, Integer::sum));
            if (entries.size() == maxCalls) {
                break;
            }
        }
        return entries;
    }
}
