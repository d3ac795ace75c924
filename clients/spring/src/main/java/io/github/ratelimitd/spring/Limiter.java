package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.Call;
import io.github.ratelimitd.client.CallException;
import io.github.ratelimitd.client.CostTooLargeException;
import io.github.ratelimitd.client.Decision;
import io.github.ratelimitd.client.Demand;
import io.github.ratelimitd.client.InvalidCallException;
import io.github.ratelimitd.client.NoReceiptException;
import io.github.ratelimitd.client.RatelimitdClient;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

/** Decides about requests, in any framework: its adapters do the rest. */
final class Limiter {
    /** The attribute of a request that passed, with its {@link Decision}: a handler may refund its receipt. */
    static final String DECISION = "ratelimitd.decision";
    /**
     * The order of filters: after those of Spring Security, whose order is -100, so that the principal is known, and
     * before those of the application.
     */
    static final int ORDER = -50;

    private final RatelimitdClient client;
    private final boolean failClosed;
    private final Outcomes outcomes;
    private final System.Logger logger = System.getLogger("io.github.ratelimitd.spring");
    private final EachSecond undecidedLine = new EachSecond();
    private final EachSecond unreleasedLine = new EachSecond();

    Limiter(RatelimitdClient client, boolean failClosed, Outcomes outcomes) {
        this.client = client;
        this.failClosed = failClosed;
        this.outcomes = outcomes;
    }

    /**
     * A rule for requests.
     *
     * @param policy its name
     * @param by the caller that is counted
     * @param cost units
     * @param limit returns the limit of a request
     */
    record Rule(String policy, Callers.By by, long cost, LimitResolver limit) {
        /** Makes a rule with the policy's limit. */
        Rule(String policy, Callers.By by, long cost) {
            this(policy, by, cost, request -> OptionalLong.empty());
        }

        Rule {
            if (policy == null || policy.isEmpty()) {
                throw new IllegalArgumentException("ratelimitd: policy is empty: it must name a policy, such as login");
            }
            if (cost < 1) {
                throw new IllegalArgumentException("ratelimitd: cost is " + cost + ": it must be 1 unit or more");
            }
        }
    }

    /** Counts the outcomes of requests. */
    @FunctionalInterface
    interface Outcomes {
        /**
         * Counts a request.
         *
         * @param outcome {@code passed}, {@code denied}, {@code refused} or {@code undecided}
         */
        void count(String policies, String outcome);

        /** Counts a request whose units could not be released: they count until their hold ends. */
        default void unreleased(String policies) {}
    }

    /** Lets one line of a kind into the log each second. */
    private static final class EachSecond {
        private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

        private final AtomicLong last = new AtomicLong(System.nanoTime() - SECOND);

        boolean isDue() {
            long now = System.nanoTime();
            long before = last.get();
            return now - before >= SECOND && last.compareAndSet(before, now);
        }
    }

    /** Blocks until a request is decided. Without rules, it passes. */
    Verdict decide(LimitedRequest request, List<Rule> rules) {
        Call call = callOf(request, rules);
        if (call == null) {
            return hidden(rules);
        }
        try {
            return counted(call, verdictOf(call, client.send(call)));
        } catch (CallException e) {
            return counted(call, verdictAfter(call, e));
        }
    }

    /** Decides as {@link #decide} does, without blocking. */
    CompletableFuture<Verdict> decideAsync(LimitedRequest request, List<Rule> rules) {
        Call call = callOf(request, rules);
        if (call == null) {
            return CompletableFuture.completedFuture(hidden(rules));
        }
        return client.sendAsync(call)
                .handle((decision, error) -> counted(
                        call, error == null ? verdictOf(call, decision) : verdictAfter(call, callExceptionOf(error))));
    }

    /**
     * Releases the units of a decision that count while its request is under way.
     *
     * @return completes once they are released or that has failed, never with an exception
     */
    CompletableFuture<Void> release(Decision decision) {
        return client.refundAsync(decision.release().orElseThrow()).exceptionally(error -> {
            if (!(error instanceof NoReceiptException)) { // their hold has not ended
                unreleased(decision, error);
            }
            return null;
        });
    }

    private void unreleased(Decision decision, Throwable error) {
        List<Decision> all = decision.demands().isEmpty() ? List.of(decision) : decision.demands();
        String policies = all.stream().map(Decision::policy).collect(Collectors.joining("+"));
        outcomes.unreleased(policies);
        if (unreleasedLine.isDue()) {
            logger.log(
                    System.Logger.Level.ERROR,
                    "units under concurrent limits are not released before their hold ends (" + policies + ": "
                            + error.getMessage() + ")");
        }
    }

    private static CallException callExceptionOf(Throwable error) {
        if (error instanceof CallException e) {
            return e;
        }
        if (error instanceof CompletionException e && e.getCause() instanceof CallException cause) {
            return cause;
        }
        throw new CompletionException(error);
    }

    /** Returns the call for a request, without repetitions; null: a trusted proxy hides the caller. */
    private static Call callOf(LimitedRequest request, List<Rule> rules) {
        Map<List<String>, Demand> demands = new LinkedHashMap<>();
        for (Rule rule : rules) {
            String caller = rule.by.callerOf(request);
            if (caller == null) {
                return null;
            }
            OptionalLong limit = rule.limit.limitOf(request);
            demands.putIfAbsent(List.of(rule.policy, caller), new Demand(rule.policy, caller, rule.cost, limit));
        }
        return Call.take(demands.values().toArray(Demand[]::new));
    }

    private Verdict hidden(List<Rule> rules) {
        outcomes.count(rules.stream().map(Rule::policy).collect(Collectors.joining("+")), "refused");
        return Verdict.refused(
                400, "Bad Request", "A proxy in front of this service does not tell which address it asks for.");
    }

    private Verdict counted(Call call, Verdict verdict) {
        String outcome = switch (verdict.status()) {
            case 0 -> verdict.decision() == null ? "undecided" : "passed";
            case 429 -> "denied";
            case 503 -> "undecided";
            default -> "refused";
        };
        outcomes.count(policiesOf(call, "+"), outcome);
        return verdict;
    }

    private Verdict verdictOf(Call call, Decision decision) {
        if (decision.degraded() && decision.limits().isEmpty()) {
            return undecided(call, "the client fails open");
        }
        return Verdict.of(decision);
    }

    /** A request that ratelimitd refuses must not pass, because it would evade its limit. */
    private Verdict verdictAfter(Call call, CallException error) {
        if (error instanceof CostTooLargeException) {
            return Verdict.refused(413, "Request Entity Too Large", "It costs more than its limit can ever hold.");
        }
        if (error instanceof InvalidCallException
                && error.problem().flatMap(p -> p.field()).orElse("").endsWith("identifier")) {
            return Verdict.refused(400, "Bad Request", error.problem().get().detail());
        }
        return undecided(call, error.getMessage());
    }

    private Verdict undecided(Call call, String why) {
        if (undecidedLine.isDue()) {
            logger.log(
                    System.Logger.Level.ERROR,
                    "ratelimitd does not decide: requests " + (failClosed ? "are refused" : "pass without a limit") + " ("
                            + policiesOf(call, ", ") + ": " + why + ")");
        }
        return failClosed ? Verdict.unavailable() : Verdict.UNDECIDED;
    }

    private static String policiesOf(Call call, String separator) {
        return call.demands().stream().map(Demand::policy).collect(Collectors.joining(separator));
    }
}
