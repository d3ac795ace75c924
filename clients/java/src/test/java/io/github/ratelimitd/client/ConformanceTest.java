package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Plays the cases of the conformance suite, which its README describes, with blocking calls and with futures. */
class ConformanceTest {
    private static final List<String> FILES = List.of("calls", "errors", "together", "operators", "unavailable", "wait");
    private static Service service;

    @BeforeAll
    static void serve() {
        service = new Service();
    }

    @AfterAll
    static void stop() {
        service.close();
    }

    @TestFactory
    Stream<DynamicTest> blocking() {
        return cases(false);
    }

    @TestFactory
    Stream<DynamicTest> futures() {
        return cases(true);
    }

    private static Stream<DynamicTest> cases(boolean async) {
        return FILES.stream().flatMap(file -> listOf(Json.read(Service.cases(file))).stream()
                .map(c -> DynamicTest.dynamicTest(file + ": " + c.get("name"), () -> play(c, async))));
    }

    private static void play(Map<String, Object> c, boolean async) throws Exception {
        Scripted other = c.containsKey("service") ? other(c.get("service")) : null;
        if ("none".equals(c.get("service"))) {
            other.close();
        }
        AtomicInteger told = new AtomicInteger();
        RatelimitdClientBuilder builder = RatelimitdClient.builder(other == null ? service.url() : other.url())
                .logger(new Quiet())
                .timeout(Duration.ofSeconds(60))
                .onFailedOpen((call, error) -> told.incrementAndGet());
        configure(builder, mapOf(c.getOrDefault("client", Map.of())));
        try (RatelimitdClient client = builder.build()) {
            playSteps(client, listOf(c.get("steps")), async);
            assertEquals(c.getOrDefault("failed_open", client.failedOpen()), client.failedOpen());
            assertEquals(client.failedOpen(), told.get());
        }
        if (other != null) {
            other.close();
            long requests = other.requests.size();
            assertEquals(c.getOrDefault("requests", requests), requests);
        }
    }

    private static Scripted other(Object script) {
        if (script instanceof String) {
            return new Scripted(Scripted.SILENT);
        }
        return new Scripted(((List<?>) script).stream().map(ConformanceTest::answerOf).toArray(Scripted.Answer[]::new));
    }

    private static Scripted.Answer answerOf(Object said) {
        if (said.equals("cut")) {
            return Scripted.CUT;
        }
        Map<String, Object> answer = mapOf(said);
        Map<String, String> headers = new LinkedHashMap<>();
        mapOf(answer.get("headers")).forEach((name, value) -> headers.put(name, (String) value));
        String body = answer.get("body") instanceof String s ? s : Json.write(answer.get("body"));
        return Scripted.answer(((Long) answer.get("status")).intValue(), headers, body);
    }

    private static void configure(RatelimitdClientBuilder builder, Map<String, Object> options) {
        options.forEach((name, value) -> {
            switch (name) {
                case "on_unavailable" -> builder.onUnavailable(
                        OnUnavailable.valueOf(((String) value).replace('-', '_').toUpperCase(Locale.ROOT)));
                case "timeout_ms" -> builder.timeout(Duration.ofMillis((Long) value));
                case "probe_interval_ms" -> builder.probeInterval(Duration.ofMillis((Long) value));
                case "retries" -> builder.retries(((Long) value).intValue());
                case "max_failures" -> builder.maxFailures(((Long) value).intValue());
                case "concurrency" -> builder.concurrency(((Long) value).intValue());
                case "disable_batching" -> builder.disableBatching();
                default -> throw new IllegalArgumentException(name);
            }
        });
    }

    private static void playSteps(RatelimitdClient client, List<Map<String, Object>> steps, boolean async)
            throws Exception {
        Map<String, String> names = new LinkedHashMap<>();
        String prefix = UUID.randomUUID().toString();
        for (Map<String, Object> step : steps) {
            Map<String, Object> asked = new LinkedHashMap<>(step);
            asked.keySet().removeAll(List.of("expect", "save"));
            Object outcome = outcome(client, mapOf(resolved(asked, names, prefix)), async);
            assertMatches(step.getOrDefault("expect", Map.of()), outcome, (String) step.get("do"));
            mapOf(step.getOrDefault("save", Map.of()))
                    .forEach((member, name) -> names.put("$" + name, (String) mapOf(outcome).get(member)));
        }
    }

    private static Object resolved(Object value, Map<String, String> names, String prefix) {
        if (value instanceof String s && s.startsWith("$")) {
            return names.getOrDefault(s, prefix + s);
        }
        if (value instanceof List<?> list) {
            return list.stream().map(v -> resolved(v, names, prefix)).toList();
        }
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> copy = new LinkedHashMap<>();
            map.forEach((name, v) -> copy.put(name, resolved(v, names, prefix)));
            return copy;
        }
        return value;
    }

    private static Object outcome(RatelimitdClient client, Map<String, Object> step, boolean async) throws Exception {
        if (!step.containsKey("concurrently")) {
            return single(client, step, async);
        }
        long n = (Long) step.get("concurrently");
        ExecutorService callers = callers();
        List<Future<Object>> outcomes = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            outcomes.add(callers.submit(() -> single(client, step, async)));
        }
        Map<String, Object> counts = new LinkedHashMap<>(Map.of("allowed", 0L, "denied", 0L, "done", 0L, "failed", 0L));
        for (Future<Object> future : outcomes) {
            Map<String, Object> outcome = mapOf(future.get());
            Object allowed = outcome.get("allowed");
            String kind = outcome.containsKey("error") ? "failed" : "done";
            counts.merge(allowed == null ? kind : (Boolean) allowed ? "allowed" : "denied", 1L, (a, b) -> (Long) a + (Long) b);
        }
        callers.shutdown();
        return counts;
    }

    /** Returns callers on virtual threads if the JDK has them, or else on platform threads. */
    private static ExecutorService callers() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException e) {
            return Executors.newCachedThreadPool();
        }
    }

    private static Object single(RatelimitdClient client, Map<String, Object> step, boolean async) {
        try {
            return async ? asked(client, step) : blocked(client, step);
        } catch (CallException e) {
            return viewOf(e);
        } catch (CompletionException e) {
            return viewOf((CallException) e.getCause());
        }
    }

    private static Object blocked(RatelimitdClient client, Map<String, Object> step) {
        String what = (String) step.get("do");
        switch (what) {
            case "refund" -> client.refund(text(step, "receipt"));
            case "release" -> client.release(text(step, "reservation"));
            case "confirm" -> client.confirm(text(step, "receipt"));
            case "reset" -> client.reset(text(step, "policy"), text(step, "identifier"));
            case "close" -> client.close();
            case "explain" -> {
                return viewOf(client.explain(text(step, "policy"), text(step, "identifier")));
            }
            case "wait" -> {
                return viewOf(client.wait(within(step), demandsOf(step)));
            }
            case "batch" -> {
                return viewOf(client.batch(callsOf(step)));
            }
            default -> {
                return viewOf(client.send(callOf(what, step)));
            }
        }
        return Map.of("done", true);
    }

    private static Object asked(RatelimitdClient client, Map<String, Object> step) {
        String what = (String) step.get("do");
        switch (what) {
            case "refund" -> client.refundAsync(text(step, "receipt")).join();
            case "release" -> client.releaseAsync(text(step, "reservation")).join();
            case "confirm" -> client.confirmAsync(text(step, "receipt")).join();
            case "reset" -> client.resetAsync(text(step, "policy"), text(step, "identifier")).join();
            case "close" -> client.close();
            case "explain" -> {
                return viewOf(client.explainAsync(text(step, "policy"), text(step, "identifier")).join());
            }
            case "wait" -> {
                return viewOf(client.waitAsync(within(step), demandsOf(step)).join());
            }
            case "batch" -> {
                return viewOf(client.batchAsync(callsOf(step)).join());
            }
            default -> {
                return viewOf(client.sendAsync(callOf(what, step)).join());
            }
        }
        return Map.of("done", true);
    }

    private static List<Call> callsOf(Map<String, Object> step) {
        return listOf(step.get("calls")).stream().map(c -> callOf(text(c, "op"), c)).toList();
    }

    private static Duration within(Map<String, Object> step) {
        return Duration.ofMillis((Long) step.get("within_ms"));
    }

    private static Demand[] demandsOf(Map<String, Object> c) {
        return listOf(c.getOrDefault("demands", List.of())).stream()
                .map(ConformanceTest::demandOf)
                .toArray(Demand[]::new);
    }

    private static Demand demandOf(Map<String, Object> d) {
        Demand demand = new Demand(text(d, "policy"), text(d, "identifier"), (Long) d.getOrDefault("cost", 1L));
        return d.containsKey("limit") ? demand.withLimit((Long) d.get("limit")) : demand;
    }

    private static Call callOf(String what, Map<String, Object> c) {
        Demand[] demands = demandsOf(c);
        Object hold = c.getOrDefault("hold_ms", c.get("reserve_ms"));
        Call call =
                switch (what) {
                    case "take" -> Call.take(demands);
                    case "record" -> Call.record(demands);
                    case "check", "reserve" -> hold == null
                            ? Call.check(demands)
                            : Call.reserve(Duration.ofMillis((Long) hold), demands);
                    case "settle" -> c.containsKey("cost")
                            ? Call.settle(text(c, "reservation"), (Long) c.get("cost"))
                            : Call.settle(text(c, "reservation"));
                    case "confirm" -> Call.confirm(text(c, "receipt"));
                    default -> throw new IllegalArgumentException(what);
                };
        return c.containsKey("idempotency_key") ? call.withIdempotencyKey(text(c, "idempotency_key")) : call;
    }

    private static String text(Map<String, Object> members, String name) {
        return (String) members.get(name);
    }

    private static Object viewOf(List<BatchResult> results) {
        return Map.of("results", results.stream().map(ConformanceTest::viewOf).toList());
    }

    private static Object viewOf(BatchResult result) {
        return result.error()
                .map(ConformanceTest::viewOf)
                .or(() -> result.decision().map(ConformanceTest::viewOf))
                .orElse(Map.of("done", true));
    }

    private static Object viewOf(CallException e) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("kind", kindOf(e));
        error.put("op", e.op());
        error.put("recorded", e.recorded().map(ConformanceTest::name).orElse(""));
        e.problem().ifPresent(p -> {
            error.put("status", (long) p.status());
            p.field().ifPresent(field -> error.put("field", field));
        });
        return Map.of("error", error);
    }

    private static String kindOf(CallException e) {
        String name = e.getClass().getSimpleName().replace("Exception", "");
        return name.equals("InvalidCall") ? "invalid" : name.replaceAll("(?<=.)([A-Z])", "_$1").toLowerCase(Locale.ROOT);
    }

    private static String name(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    private static Object viewOf(Decision d) {
        Map<String, Object> v = new LinkedHashMap<>();
        v.put("allowed", d.allowed());
        v.put("would_allow", d.wouldAllow());
        v.put("policy", d.policy());
        v.put("limit", d.limit());
        v.put("remaining", d.remaining());
        v.put("used", d.used());
        v.put("reset_after_ms", d.resetAfter().toMillis());
        v.put("retry_after_ms", milliseconds(d.retryAfter()));
        v.put("limits", d.limits().stream().map(ConformanceTest::viewOf).toList());
        v.put("mode", name(d.mode()));
        v.put("blocked", d.blocked());
        v.put("degraded", d.degraded());
        v.put("replayed", d.replayed());
        d.override().ifPresent(o -> v.put("override", name(o)));
        d.reason().ifPresent(r -> v.put("reason", name(r)));
        d.recorded().ifPresent(r -> v.put("recorded", name(r)));
        d.settled().ifPresent(n -> v.put("settled", n));
        d.over().ifPresent(n -> v.put("over", n));
        d.receipt().ifPresent(r -> v.put("receipt", r));
        d.release().ifPresent(r -> v.put("release", r));
        d.reservation().ifPresent(r -> v.put("reservation", r));
        if (!d.demands().isEmpty()) {
            v.put("demands", d.demands().stream().map(ConformanceTest::viewOf).toList());
        }
        return v;
    }

    private static Map<String, Object> viewOf(LimitDecision l) {
        Map<String, Object> v = new LinkedHashMap<>();
        v.put("name", l.name());
        v.put("algorithm", l.algorithm());
        v.put("limit", l.limit());
        v.put("window_ms", l.window().toMillis());
        v.put("allowed", l.allowed());
        v.put("used", l.used());
        v.put("remaining", l.remaining());
        v.put("reset_after_ms", l.resetAfter().toMillis());
        v.put("retry_after_ms", milliseconds(l.retryAfter()));
        l.wouldDeny().ifPresent(denies -> v.put("would_deny", denies));
        return v;
    }

    private static Object viewOf(Explanation e) {
        Map<String, Object> v = new LinkedHashMap<>();
        v.put("policy", e.policy());
        v.put("key", e.key());
        v.put("allowed", e.allowed());
        v.put("would_allow", e.wouldAllow());
        v.put("because", e.because());
        v.put("detail", e.detail());
        v.put("retry_after_ms", milliseconds(e.retryAfter()));
        v.put("denied_by", e.deniedBy());
        v.put("mode", name(e.mode()));
        v.put("guarantee", e.guarantee());
        v.put("degraded", e.degraded());
        v.put("override", e.override().orElse(null));
        v.put("block", e.block().orElse(null));
        v.put("limits", e.limits().stream().map(l -> {
            Map<String, Object> limit = viewOf(l.decision());
            limit.put("policy_limit", l.policyLimit());
            return limit;
        }).toList());
        return v;
    }

    private static Object milliseconds(Optional<Duration> wait) {
        return wait.map(Duration::toMillis).orElse(null);
    }

    /** Checks that got has all members of want. */
    private static void assertMatches(Object want, Object got, String where) {
        if (want instanceof List<?> wants) {
            List<?> all = Assertions.assertInstanceOf(List.class, got, where);
            assertEquals(wants.size(), all.size(), where + ": " + got);
            for (int i = 0; i < wants.size(); i++) {
                assertMatches(wants.get(i), all.get(i), where + "[" + i + "]");
            }
        } else if (!(want instanceof Map<?, ?> members)) {
            assertEquals(want, got, where);
        } else if (members.containsKey("$present")) {
            assertEquals(members.get("$present"), got != null && !got.equals(""), where);
        } else if (members.containsKey("$at_least")) {
            Assertions.assertTrue((Long) members.get("$at_least") <= (Long) got, where + ": " + got);
            Assertions.assertTrue((Long) got <= (Long) members.get("$at_most"), where + ": " + got);
        } else {
            Assertions.assertInstanceOf(Map.class, got, where);
            members.forEach((name, w) -> assertMatches(w, mapOf(got).get(name), where + "." + name));
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> mapOf(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> listOf(Object value) {
        return (List<Map<String, Object>>) value;
    }
}
