package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class JoinerTest {
    private static final Answer DONE = new Answer.Done();

    private final List<Joiner.Group> groups = new ArrayList<>();
    private final List<CompletableFuture<Void>> sent = new ArrayList<>();
    private final Deque<Runnable> timer = new ArrayDeque<>();
    private final Joiner joiner = new Joiner(
            group -> {
                groups.add(group);
                sent.add(new CompletableFuture<>());
                return sent.get(sent.size() - 1);
            },
            (task, ms) -> timer.add(task),
            2,
            Joiner.MAX_CALLS);

    private Joiner.Entry enter(String identifier) {
        Call call = Call.take(new Demand("sms-send", identifier));
        Joiner.Entry entry = new Joiner.Entry(new PreparedCall(call, false, null));
        joiner.enter(entry);
        return entry;
    }

    private void answer(int group) {
        groups.get(group).entries.forEach(entry -> entry.settle(DONE));
        sent.get(group).complete(null);
    }

    private List<Integer> sizes() {
        return groups.stream().map(group -> group.entries.size()).toList();
    }

    @Test
    void callsThatComeWhileRequestsAreUnderWayGoAsOne() {
        IntStream.range(0, 20).forEach(i -> enter("a" + i));
        assertEquals(List.of(1, 1), sizes(), "the first calls go at once, and the others wait");
        answer(0);
        assertEquals(List.of(1, 1, 18), sizes());
        answer(1);
        answer(2);
        enter("b");
        assertEquals(List.of(1, 1, 18, 1), sizes());
    }

    @Test
    void anotherRequestGoesWhileEarlierOnesAreLate() {
        IntStream.range(0, 5).forEach(i -> enter("a" + i));
        assertEquals(1, timer.size(), "one timer for all that wait");
        timer.remove().run();
        assertEquals(List.of(1, 1, 3), sizes());
        assertTrue(timer.isEmpty(), "no call waits any more");
    }

    @Test
    void alikeCallsAreSpread() {
        IntStream.range(0, 22).forEach(i -> enter("alike"));
        IntStream.range(0, 4).forEach(this::answer);
        assertEquals(List.of(1, 1, 8, 8, 4), sizes());
    }

    @Test
    void longCallsAreSpread() {
        IntStream.range(0, 42).forEach(i -> enter(i + "x".repeat(60_000)));
        answer(0);
        answer(1);
        assertEquals(List.of(1, 1, 17, 17), sizes(), "a batch has a mebibyte");
    }

    @Test
    void aCallThatLeavesBeforeItIsSentIsNot() {
        enter("a");
        enter("b");
        Joiner.Entry waiting = enter("c");
        joiner.leave(waiting, Failure.Kind.TIMEOUT);
        assertFalse(((Failure) waiting.settled.join()).sent());
        answer(0);
        assertEquals(List.of(1, 1), sizes());
    }

    @Test
    void aRequestEndsOnceAllItsCallersHaveLeft() {
        enter("a");
        enter("b");
        List<Joiner.Entry> both = List.of(enter("c"), enter("d"));
        answer(0);
        joiner.leave(both.get(0), Failure.Kind.TIMEOUT);
        assertTrue(((Failure) both.get(0).settled.join()).sent());
        assertFalse(groups.get(2).abandoned.isDone(), "one caller still waits");
        joiner.leave(both.get(1), Failure.Kind.TIMEOUT);
        assertTrue(groups.get(2).abandoned.isDone());
    }

    @Test
    void closeWaitsForAnswersAndRefusesCalls() throws InterruptedException {
        List<Joiner.Entry> made = List.of(enter("a"), enter("b"), enter("c"));
        Thread closing = new Thread(() -> {
            try {
                joiner.close();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        closing.start();
        while (closing.getState() != Thread.State.WAITING) {
            Thread.yield();
        }
        assertEquals(Failure.Kind.CLOSED, ((Failure) enter("late").settled.join()).kind());
        IntStream.range(0, 3).forEach(this::answer);
        closing.join();
        made.forEach(entry -> assertEquals(DONE, entry.settled.join()));
    }
}
