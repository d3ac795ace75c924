package io.github.ratelimitd.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/** Lets callers wait for room: those of one key take turns, and one of them asks at a time. */
final class Lines {
    /** How many callers may wait for one key, including the one that asks. */
    static final int MAX_CALLERS = 1000;

    /** Why a caller does not wait. */
    enum Reason {
        NO_ROOM("there is no room in time"),
        FULL("too many wait already");

        final String message;

        Reason(String message) {
            this.message = message;
        }
    }

    /** A waiting caller. Its methods are called without a lock. */
    interface Caller {
        /** Returns the last moment at which it may still ask, by {@link System#nanoTime}. */
        long deadline();

        /** Called when it is the first of its line, so it may ask. */
        void turn();

        /** Called if there is no room before its deadline. */
        void late();
    }

    private static final class Line {
        final List<Caller> callers = new ArrayList<>();
        /** There is no room before this instant of {@link System#nanoTime}. Null: unknown. */
        Long until;

        boolean isLate(Caller caller) {
            return until != null && caller.deadline() - until < 0;
        }
    }

    private final Lock lock = new ReentrantLock();
    private final Map<String, Line> lines = new HashMap<>();

    /** Puts a caller at the end of the line. Returns the reason if it does not wait, else null. */
    Reason enter(String key, Caller caller) {
        boolean first;
        lock.lock();
        try {
            Line line = lines.computeIfAbsent(key, k -> new Line());
            if (line.isLate(caller)) {
                return Reason.NO_ROOM;
            }
            if (line.callers.size() >= MAX_CALLERS) {
                return Reason.FULL;
            }
            line.callers.add(caller);
            first = line.callers.size() == 1;
        } finally {
            lock.unlock();
        }
        if (first) {
            caller.turn();
        }
        return null;
    }

    /** Removes a caller from the line. If it was the first, the next one asks. */
    void leave(String key, Caller caller) {
        Caller next;
        lock.lock();
        try {
            Line line = lines.get(key);
            int i = line == null ? -1 : line.callers.indexOf(caller);
            if (i < 0) {
                return;
            }
            line.callers.remove(i);
            if (line.callers.isEmpty()) {
                lines.remove(key);
            }
            if (i > 0 || line.callers.isEmpty()) {
                return;
            }
            line.until = null;
            next = line.callers.get(0);
        } finally {
            lock.unlock();
        }
        next.turn();
    }

    /** Tells all callers behind the first whose deadline is before an instant that there is no room until then. */
    void fullUntil(String key, long until) {
        List<Caller> late;
        lock.lock();
        try {
            Line line = lines.get(key);
            if (line == null) {
                return;
            }
            line.until = until;
            late = line.callers.stream().skip(1).filter(line::isLate).toList();
        } finally {
            lock.unlock();
        }
        late.forEach(Caller::late);
    }
}
