package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Asks a ratelimitd: may this phone number have another code? Make one client for a process; it is safe for all threads,
 * virtual ones included.
 *
 * <p>Simultaneous calls share requests. A lone call is sent at once. Each call keeps a deadline and an
 * answer of its own.
 *
 * <p>A denial is not an error: {@link Decision#allowed} is false. A {@link CallException} means that there is no decision, and
 * its {@link CallException#recorded} whether units may count all the same. Every call may throw
 *
 * <ul>
 *   <li>an {@link UnavailableException} if the service does not decide, unless the client
 *       {@linkplain RatelimitdClientBuilder#onUnavailable fails open},
 *   <li>an {@link InvalidCallException} if the call is wrong,
 *   <li>a {@link ClosedException} once the client is closed,
 *   <li>an {@link InterruptedCallException} if the calling thread is interrupted.
 * </ul>
 *
 * <p>Each call has a form that blocks, and one that returns a {@link CompletableFuture}. The future fails with the same
 * exceptions. Cancelling it ends the call, which may count all the same. Dependents of a future run on threads of the
 * client, which starts as many as it needs.
 *
 * <p>If OpenTelemetry's API is on the class path, requests carry the trace of the caller. A request that several calls
 * share belongs to the first sampled trace.
 */
public final class RatelimitdClient implements AutoCloseable {
    static final int MAX_UNBATCHED = 256;
    private static final Duration MAX_WITHIN = Duration.ofDays(366);

    private final Settings settings;
    private final Threads threads = new Threads();
    private final Transport transport;
    private final Breaker breaker;
    private final Joiner joiner;
    private final FailedOpen failedOpen;
    private final Lines lines = new Lines();

    /** The builder's settings for calls. */
    private record Settings(Duration timeout, int retries) {}

    RatelimitdClient(RatelimitdClientBuilder b) {
        settings = new Settings(b.timeout, b.retries);
        transport = new Transport(b.baseUrls, Map.copyOf(b.headers), b.timeout, b.sslContext, threads.executor());
        System.Logger logger = b.logger;
        breaker = new Breaker(
                b.maxFailures,
                b.probeInterval,
                () -> logger.log(
                        System.Logger.Level.ERROR, "ratelimitd does not answer: calls give what onUnavailable says"),
                () -> logger.log(System.Logger.Level.INFO, "ratelimitd answers again"));
        joiner = new Joiner(
                this::send,
                (task, ms) -> threads.after(Duration.ofMillis(ms), task),
                b.batching ? b.concurrency : MAX_UNBATCHED,
                b.batching ? Joiner.MAX_CALLS : 1);
        failedOpen = new FailedOpen(b.onUnavailable, b.onFailedOpen, logger);
    }

    /**
     * Begins a client of the service at these addresses. Requests go to the first one, and after a failure to the next
     * one that answers. All must be instances that decide together.
     *
     * @param baseUrls one address or more, such as {@code http://127.0.0.1:8080}
     * @return a builder with the defaults
     * @throws IllegalArgumentException if an address is invalid
     */
    public static RatelimitdClientBuilder builder(String... baseUrls) {
        Objects.requireNonNull(baseUrls, "baseUrls");
        return new RatelimitdClientBuilder(Arrays.asList(baseUrls));
    }

    /**
     * Asks whether demands would be allowed now, and records nothing.
     *
     * @param demands at least one
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision check(Demand... demands) {
        return send(Call.check(demands));
    }

    /**
     * Asks as {@link #check} does, without blocking.
     *
     * @param demands at least one
     * @return the service's decision
     */
    public CompletableFuture<Decision> checkAsync(Demand... demands) {
        return sendAsync(Call.check(demands));
    }

    /**
     * Records demands, whatever the limits, and returns what remains.
     *
     * @param demands at least one
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision record(Demand... demands) {
        return send(Call.record(demands));
    }

    /**
     * Asks as {@link #record} does, without blocking.
     *
     * @param demands at least one
     * @return the service's decision
     */
    public CompletableFuture<Decision> recordAsync(Demand... demands) {
        return sendAsync(Call.record(demands));
    }

    /**
     * Checks and records demands as one step: all are recorded, or none is.
     *
     * @param demands at least one
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision take(Demand... demands) {
        return send(Call.take(demands));
    }

    /**
     * Asks as {@link #take} does, without blocking.
     *
     * @param demands at least one
     * @return the service's decision
     */
    public CompletableFuture<Decision> takeAsync(Demand... demands) {
        return sendAsync(Call.take(demands));
    }

    /**
     * Checks demands and, if they are allowed, holds their units. A {@link #settle(String)} of the decision's reservation
     * makes them count, a {@link #release} frees them; otherwise they are freed when the hold ends.
     *
     * @param hold how long: whole milliseconds, from 1 to an hour
     * @param demands at least one
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision reserve(Duration hold, Demand... demands) {
        return send(Call.reserve(hold, demands));
    }

    /**
     * Asks as {@link #reserve} does, without blocking.
     *
     * @param hold how long: whole milliseconds, from 1 to an hour
     * @param demands at least one
     * @return the service's decision
     */
    public CompletableFuture<Decision> reserveAsync(Duration hold, Demand... demands) {
        return sendAsync(Call.reserve(hold, demands));
    }

    /**
     * Records the units that a {@link #reserve} holds.
     *
     * @param reservation its {@link Decision#reservation}
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision settle(String reservation) {
        return send(Call.settle(reservation));
    }

    /**
     * Asks as {@link #settle(String)} does, without blocking.
     *
     * @param reservation the {@link Decision#reservation} of a {@link #reserve}
     * @return the service's decision
     */
    public CompletableFuture<Decision> settleAsync(String reservation) {
        return sendAsync(Call.settle(reservation));
    }

    /**
     * Records the units that each demand of a {@link #reserve} actually used. Held units that were not used are freed, and
     * units beyond those held count whatever the limit: see {@link Decision#over}. Only the first settlement takes effect.
     *
     * @param reservation its {@link Decision#reservation}
     * @param cost units that each of its demands used: 0 or more
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision settle(String reservation, long cost) {
        return send(Call.settle(reservation, cost));
    }

    /**
     * Asks as {@link #settle(String, long)} does, without blocking.
     *
     * @param reservation the {@link Decision#reservation} of a {@link #reserve}
     * @param cost units that each of its demands used: 0 or more
     * @return the service's decision
     */
    public CompletableFuture<Decision> settleAsync(String reservation, long cost) {
        return sendAsync(Call.settle(reservation, cost));
    }

    /**
     * Frees at once the units that a {@link #reserve} holds.
     *
     * @param reservation its {@link Decision#reservation}
     * @throws NoReceiptException if it was settled or released before, or has ended
     * @throws CallException if it is unknown whether it was released
     */
    public void release(String reservation) {
        refund(reservation);
    }

    /**
     * Asks as {@link #release} does, without blocking.
     *
     * @param reservation the {@link Decision#reservation} of a {@link #reserve}
     * @return completes when it was released
     */
    public CompletableFuture<Void> releaseAsync(String reservation) {
        return refundAsync(reservation);
    }

    /**
     * Takes demands as soon as their limits allow. It waits as long as a denial says, and a random bit longer, and takes
     * again. Calls of this client for the same policies and identifiers take turns. Don't use it for policies with
     * {@code count: all}, where each attempt uses quota.
     *
     * @param within how long it may take: more than 0 and at most 366 days
     * @param demands at least one
     * @return a decision that allows
     * @throws NoRoomException as soon as it is known that there is no room in time or that no wait helps, and if 1000
     *     calls already wait
     * @throws CallException if there is no decision
     */
    public Decision wait(Duration within, Demand... demands) {
        return await("take", () -> {
            Waiting waiting = waitFor(within, demands);
            return new Pending<>(waiting.result, waiting::end);
        });
    }

    /**
     * Asks as {@link #wait(Duration, Demand...)} does, without blocking.
     *
     * @param within how long it may take: more than 0 and at most 366 days
     * @param demands at least one
     * @return a decision that allows
     */
    public CompletableFuture<Decision> waitAsync(Duration within, Demand... demands) {
        try {
            return waitFor(within, demands).result;
        } catch (InvalidCallException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private Waiting waitFor(Duration within, Demand... demands) {
        Objects.requireNonNull(within, "within");
        Call call = Call.take(demands);
        if (within.isNegative() || within.isZero() || within.compareTo(MAX_WITHIN) > 0) {
            throw CallException.refused(
                    "take", "within", "It must be more than 0 and at most " + MAX_WITHIN.toDays() + " days.");
        }
        List<List<String>> key = call.demands().stream()
                .map(demand -> List.of(demand.policy(), demand.identifier()))
                .sorted(Comparator.comparing(Json::write))
                .toList();
        return new Waiting(lines, threads, Json.write(key), within, () -> sendAsync(call));
    }

    /**
     * Makes one call that is not a confirm, such as one with an idempotency key.
     *
     * @param call the call
     * @return the service's decision
     * @throws CallException if there is no decision
     */
    public Decision send(Call call) {
        return await(CallException.nameOf(call.op()), () -> decide(call));
    }

    /**
     * Asks as {@link #send(Call)} does, without blocking.
     *
     * @param call the call
     * @return the service's decision
     */
    public CompletableFuture<Decision> sendAsync(Call call) {
        Objects.requireNonNull(call, "call");
        return future(() -> decide(call));
    }

    /**
     * Makes up to 1000 calls as one request. An invalid call does not affect the others. Calls that share a policy and
     * identifier are decided in their order.
     *
     * @param calls from 1 to 1000, including confirms
     * @return a result for each, in their order
     * @throws CallException if they do not fit a batch; then none was made
     */
    public List<BatchResult> batch(List<Call> calls) {
        return await("batch", () -> together(calls));
    }

    /**
     * Asks as {@link #batch} does, without blocking.
     *
     * @param calls from 1 to 1000, including confirms
     * @return a result for each, in their order
     */
    public CompletableFuture<List<BatchResult>> batchAsync(List<Call> calls) {
        List<Call> copy = List.copyOf(calls);
        return future(() -> together(copy));
    }

    /**
     * Gives back the units of a receipt, once. A refund without an answer is not repeated, because a
     * second one would find nothing, like a forged one.
     *
     * @param receipt the {@link Decision#receipt} of a take or record, or its {@link Decision#release}
     * @throws NoReceiptException if there is nothing to refund, or no longer
     * @throws CallException if it may not be done; its {@code recorded} says whether the units still count
     */
    public void refund(String receipt) {
        await("refund", () -> giveBack(receipt));
    }

    /**
     * Asks as {@link #refund} does, without blocking.
     *
     * @param receipt the {@link Decision#receipt} of a take or record, or its {@link Decision#release}
     * @return completes with null once the units are given back
     */
    public CompletableFuture<Void> refundAsync(String receipt) {
        Objects.requireNonNull(receipt, "receipt");
        return future(() -> giveBack(receipt));
    }

    /**
     * Confirms that the units of a receipt were real: the user entered the code. It counts once, however often it is called. It
     * also succeeds if no limit depends on confirmations. It throws even if the client fails open.
     *
     * @param receipt the {@link Decision#receipt} of a take or record
     * @throws NoReceiptException if the receipt was refunded, or its window is over
     * @throws CallException if it may not be done; its {@code recorded} says whether the units still count as
     *     unconfirmed
     */
    public void confirm(String receipt) {
        Call call = Call.confirm(receipt);
        await("confirm", () -> ask(call).map(answer -> null));
    }

    /**
     * Asks as {@link #confirm} does, without blocking.
     *
     * @param receipt the {@link Decision#receipt} of a take or record
     * @return completes with null once it is confirmed
     */
    public CompletableFuture<Void> confirmAsync(String receipt) {
        Call call = Call.confirm(receipt);
        return future(() -> ask(call).map(answer -> null));
    }

    /**
     * Forgets the counts of an identifier under a policy, on every instance within a second. If the service
     * requires tokens, it needs one with the scope {@code admin}.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @throws CallException if it may not be done; its {@code recorded} says whether the reset took effect
     */
    public void reset(String policy, String identifier) {
        await("reset", () -> forget(policy, identifier));
    }

    /**
     * Asks as {@link #reset} does, without blocking.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @return completes with null once the reset took effect
     */
    public CompletableFuture<Void> resetAsync(String policy, String identifier) {
        return future(() -> forget(policy, identifier));
    }

    /**
     * Explains why an identifier would be allowed or denied one unit now: every limit's state, and all else that decides. It
     * records nothing. If the service requires tokens, it needs one with the scope {@code admin}.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @return the explanation
     * @throws CallException if there is no explanation, even if the client fails open
     */
    public Explanation explain(String policy, String identifier) {
        return await("explain", () -> explained(policy, identifier));
    }

    /**
     * Asks as {@link #explain} does, without blocking.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @return the explanation
     */
    public CompletableFuture<Explanation> explainAsync(String policy, String identifier) {
        return future(() -> explained(policy, identifier));
    }

    /**
     * Returns how many calls {@link OnUnavailable#FAIL_OPEN} has allowed without a decision: a metric that
     * should stay at 0.
     *
     * @return calls since the client was made
     */
    public long failedOpen() {
        return failedOpen.count();
    }

    /**
     * Waits until all earlier calls have answers, each within its time, and closes connections. Further calls
     * throw a {@link ClosedException}. If the thread is interrupted, it stops waiting, and its interrupt status is set.
     */
    @Override
    public void close() {
        try {
            joiner.close();
            transport.close();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** A call that is under way. */
    private record Pending<T>(CompletableFuture<T> result, Consumer<Failure.Kind> end) {
        static Pending<Answer> of(Asking asking) {
            return new Pending<>(asking.result, asking::end);
        }

        <U> Pending<U> map(Function<T, U> f) {
            return new Pending<>(result.thenApply(f), end);
        }
    }

    private static <T> T await(String op, Supplier<Pending<T>> ask) {
        if (Thread.currentThread().isInterrupted()) {
            Failure failure = Failure.of(Failure.Kind.ENDED, false);
            throw CallException.of(op, CallException.recordedBefore(op), failure);
        }
        Pending<T> pending = ask.get();
        try {
            return pending.result.get();
        } catch (InterruptedException e) {
            pending.end.accept(Failure.Kind.ENDED);
            Thread.currentThread().interrupt();
            return endedBy(pending);
        } catch (ExecutionException e) {
            throw ofCaller(e.getCause());
        }
    }

    private static <T> T endedBy(Pending<T> pending) {
        try {
            return pending.result.join();
        } catch (CompletionException e) {
            throw ofCaller(e.getCause());
        }
    }

    /** Returns the exception with the stack of the caller, instead of that of the answering thread. */
    private static RuntimeException ofCaller(Throwable error) {
        if (error instanceof CallException e) {
            e.setStackTrace(new Throwable().getStackTrace());
            return e;
        }
        return new IllegalStateException("ratelimitd: the client has a bug", error);
    }

    /** Returns a future whose dependents run on threads for which nothing else waits. */
    private <T> CompletableFuture<T> future(Supplier<Pending<T>> ask) {
        CompletableFuture<T> future = new CompletableFuture<>();
        Pending<T> pending;
        try {
            pending = ask.get();
        } catch (CallException e) {
            future.completeExceptionally(e);
            return future;
        }
        pending.result.whenCompleteAsync(
                (value, error) -> {
                    if (error == null) {
                        future.complete(value);
                    } else {
                        future.completeExceptionally(error instanceof CompletionException ? error.getCause() : error);
                    }
                },
                threads.executor());
        future.whenComplete((value, error) -> {
            if (future.isCancelled()) {
                pending.end.accept(Failure.Kind.ENDED);
            }
        });
        return future;
    }

    private Pending<Decision> decide(Call call) {
        if (call.op() == Op.CONFIRM) {
            throw CallException.refused("confirm", "op", "A confirm has no decision: use confirm, or batch.");
        }
        return ask(call).map(answer -> ((Answer.Decided) answer).decision());
    }

    private Pending<Answer> ask(Call call) {
        OfCall asking = new OfCall(prepare(call));
        asking.start();
        return Pending.of(asking);
    }

    private PreparedCall prepare(Call call) {
        return new PreparedCall(call, settings.retries > 0, TraceContext.current());
    }

    private Pending<List<BatchResult>> together(List<Call> calls) {
        if (calls.isEmpty() || calls.size() > Joiner.MAX_CALLS) {
            throw CallException.refused("batch", "operations", "A batch has 1 to " + Joiner.MAX_CALLS + " calls.");
        }
        List<CompletableFuture<BatchResult>> results = new ArrayList<>();
        List<PreparedCall> sound = new ArrayList<>();
        List<Integer> places = new ArrayList<>();
        int size = 0;
        for (Call call : calls) {
            try {
                PreparedCall prepared = prepare(call);
                size += prepared.operation.length + 1;
                sound.add(prepared);
                places.add(results.size());
                results.add(null);
            } catch (InvalidCallException e) {
                results.add(CompletableFuture.completedFuture(resultOf(null, e)));
            }
        }
        if (size > Joiner.MAX_SIZE) {
            throw CallException.refused(
                    "batch", "operations", "They are longer than a batch of " + Joiner.MAX_SIZE + " bytes.");
        }
        List<OfCall> askings = sound.stream().map(OfCall::new).toList();
        List<Joiner.Entry> entries = sound.stream().map(Joiner.Entry::new).toList();
        for (int i = 0; i < askings.size(); i++) {
            results.set(places.get(i), askings.get(i).result.handle(RatelimitdClient::resultOf));
        }
        if (!entries.isEmpty()) {
            joiner.sendTogether(entries);
        }
        for (int i = 0; i < askings.size(); i++) {
            askings.get(i).proceed(askings.get(i).tryOf(entries.get(i)));
        }
        CompletableFuture<List<BatchResult>> all = CompletableFuture.allOf(results.toArray(CompletableFuture[]::new))
                .thenApply(done -> results.stream().map(CompletableFuture::join).toList());
        return new Pending<>(all, why -> askings.forEach(asking -> asking.end(why)));
    }

    private static BatchResult resultOf(Answer answer, Throwable error) {
        if (error instanceof CallException e) {
            return new BatchResult(Optional.empty(), Optional.of(e));
        }
        if (error != null) {
            throw new CompletionException(error);
        }
        Decision decision = answer instanceof Answer.Decided d ? d.decision() : null;
        return new BatchResult(Optional.ofNullable(decision), Optional.empty());
    }

    private Pending<Void> giveBack(String receipt) {
        Objects.requireNonNull(receipt, "receipt");
        PreparedCall.validateReceipt("refund", receipt);
        Map<String, Object> members = Map.of("receipt", receipt);
        return direct("refund", members, false, Failure::stillCounts, reply -> doneBy(reply, 200)).map(answer -> null);
    }

    private Pending<Void> forget(String policy, String identifier) {
        Map<String, Object> target = target("reset", policy, identifier);
        return direct("reset", target, true, failure -> failure.recorded(true), reply -> doneBy(reply, 204))
                .map(answer -> null);
    }

    private Pending<Explanation> explained(String policy, String identifier) {
        Map<String, Object> target = target("explain", policy, identifier);
        return direct("explain", target, true, failure -> Recorded.NO, reply -> reply.status() == 200
                        ? Wire.readExplanation(reply)
                        : Wire.readProblem(reply))
                .map(answer -> ((Answer.Explained) answer).explanation());
    }

    private static Map<String, Object> target(String op, String policy, String identifier) {
        Objects.requireNonNull(policy, "policy");
        Objects.requireNonNull(identifier, "identifier");
        PreparedCall.validateUnicode(op, "policy", policy);
        PreparedCall.validateUnicode(op, "identifier", identifier);
        Map<String, Object> members = new LinkedHashMap<>();
        members.put("policy", policy);
        members.put("identifier", identifier);
        return members;
    }

    private static Answer doneBy(Outcome.Reply reply, int status) {
        return reply.status() == status ? new Answer.Done() : Wire.readProblem(reply);
    }

    private Pending<Answer> direct(
            String op,
            Map<String, Object> members,
            boolean idempotent,
            Function<Failure, Recorded> recordedAfter,
            Function<Outcome.Reply, Answer> read) {
        Transport.Request request =
                new Transport.Request(op, PreparedCall.utf8(members), null, TraceContext.current(), null);
        Asking asking = new Asking(threads, settings.timeout, settings.retries) {
            @Override
            Try begin() {
                return new DirectTry(request, read);
            }

            @Override
            Recorded recordedAfter(Failure failure) {
                return recordedAfter.apply(failure);
            }

            @Override
            boolean repeatableAfter(Recorded recorded) {
                return idempotent || recorded != Recorded.UNKNOWN;
            }

            @Override
            Answer giveUp(Failure failure, Recorded recorded) {
                throw CallException.of(op, recorded, failure);
            }
        };
        asking.start();
        return Pending.of(asking);
    }

    /** One attempt of a request without calls. */
    private final class DirectTry implements Asking.Try {
        private final CompletableFuture<Answer> answer = new CompletableFuture<>();
        private final CompletableFuture<Void> abandoned = new CompletableFuture<>();
        /** The reason why the caller left; null: it waits. */
        private volatile Failure.Kind over;

        DirectTry(Transport.Request request, Function<Outcome.Reply, Answer> read) {
            boolean open = joiner.bypass(() -> exchange(request, abandoned)
                    .thenAccept(outcome -> answer.complete(over == null ? answerOf(outcome, read) : Failure.of(over, true))));
            if (!open) {
                answer.complete(Failure.of(Failure.Kind.CLOSED, false));
            }
        }

        @Override
        public CompletableFuture<Answer> answer() {
            return answer;
        }

        @Override
        public void leave(Failure.Kind why) {
            over = why;
            abandoned.complete(null);
            answer.complete(Failure.of(why, true));
        }
    }

    /** A call that may share requests with others. */
    private final class OfCall extends Asking {
        private final PreparedCall call;

        OfCall(PreparedCall call) {
            super(threads, settings.timeout, settings.retries);
            this.call = call;
        }

        @Override
        Try begin() {
            Joiner.Entry entry = new Joiner.Entry(call);
            joiner.enter(entry);
            return tryOf(entry);
        }

        Try tryOf(Joiner.Entry entry) {
            return new Try() {
                @Override
                public CompletableFuture<Answer> answer() {
                    return entry.settled;
                }

                @Override
                public void leave(Failure.Kind why) {
                    joiner.leave(entry, why);
                }
            };
        }

        @Override
        Recorded recordedAfter(Failure failure) {
            return call.recordedAfter(failure);
        }

        @Override
        boolean repeatableAfter(Recorded recorded) {
            return call.repeatableAfter(recorded);
        }

        @Override
        Answer giveUp(Failure failure, Recorded recorded) {
            CallException error = CallException.of(call.op, recorded, failure);
            return failedOpen.insteadOf(error, call.call, failure);
        }
    }

    /** Sends a group as one request, and settles all its entries. */
    private CompletableFuture<Void> send(Joiner.Group group) {
        List<Joiner.Entry> entries = group.entries;
        CompletableFuture<Failure> sent = entries.size() == 1 ? sendOne(group, entries.get(0)) : sendBatch(group);
        return sent.handle((failure, bug) -> {
            Failure why = bug == null ? failure : Failure.connection("the client has a bug", true, bug);
            for (Joiner.Entry entry : entries) { // settled entries keep their answers
                entry.settle(why != null ? why : Failure.connection("the answer ends too early", true, null));
            }
            return null;
        });
    }

    /** Sends a call. The future has the failure, or null after an answer. */
    private CompletableFuture<Failure> sendOne(Joiner.Group group, Joiner.Entry entry) {
        PreparedCall call = entry.call;
        Transport.Request request =
                new Transport.Request(call.op, call.body, call.idempotencyKey, call.trace, null);
        return exchange(request, group.abandoned).thenApply(outcome -> {
            Answer answer = answerOf(outcome, reply -> checked(entry, Wire.readAnswer(reply)));
            entry.settle(answer);
            return null;
        });
    }

    /** Sends a batch. The future has the failure of the remaining calls, or null after the whole answer. */
    private CompletableFuture<Failure> sendBatch(Joiner.Group group) {
        List<Joiner.Entry> entries = group.entries;
        List<PreparedCall> calls = entries.stream().map(entry -> entry.call).toList();
        Consumer<byte[]> onLine = line -> {
            Wire.Line read = Wire.readLine(line, calls.size());
            Joiner.Entry entry = entries.get(read.index());
            entry.settle(checked(entry, read.answer()));
            breaker.answered(System.nanoTime());
        };
        Transport.Request request =
                new Transport.Request("batch", Batch.bodyOf(calls), null, TraceContext.of(calls), onLine);
        return exchange(request, group.abandoned).thenApply(outcome -> {
            Answer failure = answerOf(outcome, reply -> reply.body() == null ? null : settleAll(entries, reply));
            return (Failure) failure;
        });
    }

    /** Settles entries by a reply that is not in lines; returns the failure, or null. */
    private static Failure settleAll(List<Joiner.Entry> entries, Outcome.Reply reply) {
        if (reply.status() != 200) {
            return Wire.readProblem(reply);
        }
        List<Answer> results = Wire.readResults(reply, entries.size());
        for (int i = 0; i < results.size(); i++) {
            checked(entries.get(i), results.get(i));
        }
        for (int i = 0; i < results.size(); i++) {
            entries.get(i).settle(results.get(i));
        }
        return null;
    }

    /** Returns the answer if it has the right kind for the entry. */
    private static Answer checked(Joiner.Entry entry, Answer answer) {
        if (!(answer instanceof Failure) && answer instanceof Answer.Confirmed != entry.call.isConfirm()) {
            throw new Unreadable("it answers what was not asked");
        }
        return answer;
    }

    /** Reads a reply by read, or returns the failure. */
    private static Answer answerOf(Outcome outcome, Function<Outcome.Reply, Answer> read) {
        if (outcome instanceof Failure failure) {
            return failure;
        }
        Outcome.Reply reply = (Outcome.Reply) outcome;
        try {
            return read.apply(reply);
        } catch (Unreadable e) {
            return Failure.foreign(reply.status(), e.getMessage(), reply.retryAfter());
        }
    }

    /** Makes a request, unless requests fail at once. The future never fails. */
    private CompletableFuture<Outcome> exchange(Transport.Request request, CompletableFuture<Void> abandoned) {
        long began = System.nanoTime();
        if (!breaker.admit(began)) {
            return CompletableFuture.completedFuture(Failure.of(Failure.Kind.OPEN, false));
        }
        Transport.Exchange exchange;
        try {
            exchange = transport.send(request);
        } catch (RuntimeException e) { // such as a header that can't be sent: callers must get the failure
            breaker.abandoned();
            return CompletableFuture.completedFuture(Failure.connection("the request could not be made", false, e));
        }
        abandoned.thenRun(() -> exchange.cancel(isLate(began)));
        return exchange.outcome.thenApply(outcome -> {
            long now = System.nanoTime();
            if (outcome instanceof Outcome.Reply) {
                breaker.answered(now);
            } else if (!abandoned.isDone() || isLate(began)) {
                breaker.failed(now);
            } else {
                breaker.abandoned(); // by its callers
            }
            return outcome;
        });
    }

    /** Returns whether a request without an answer that began then has information about the service. */
    private boolean isLate(long began) {
        return System.nanoTime() - began >= settings.timeout.toNanos() / 2;
    }
}
