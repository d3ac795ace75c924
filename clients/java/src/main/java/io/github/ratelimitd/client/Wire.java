package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/** Reads answers of the service. Any other answer is {@link Unreadable}. */
final class Wire {
    /** The Retry-After of a 503, because results of a batch have none. */
    private static final Duration BATCH_RETRY_AFTER = Duration.ofSeconds(1);

    private static final Pattern OPERATION = Pattern.compile("^operations\\[\\d+]\\.");

    private Wire() {}

    /** Reads the answer to one call. */
    static Answer readAnswer(Outcome.Reply reply) {
        return answerOf(Members.of(Json.read(reply.body())), reply.status(), reply.retryAfter(), reply.replayed(), "");
    }

    /** Reads the answer to a batch, with a result for each of n operations. */
    static List<Answer> readResults(Outcome.Reply reply, int n) {
        List<Answer> results = Members.of(Json.read(reply.body())).list("results", r -> resultOf(Members.of(r)));
        if (results.size() != n) {
            throw new Unreadable("it has not one result for each operation");
        }
        return results;
    }

    /** A line about one operation. */
    record Line(int index, Answer answer) {}

    /** Reads a line of the answer to a batch of n operations. */
    static Line readLine(byte[] line, int n) {
        Members m = Members.of(Json.read(line));
        long index = m.integer("index");
        if (index >= n) {
            throw new Unreadable("it answers an operation that was not asked");
        }
        return new Line((int) index, resultOf(m));
    }

    /** Reads an answer without a decision. */
    static Failure readProblem(Outcome.Reply reply) {
        return problemOf(Members.of(Json.read(reply.body())), reply.status(), reply.retryAfter(), "");
    }

    /** Reads the answer to explain. */
    static Answer readExplanation(Outcome.Reply reply) {
        return new Answer.Explained(explanationOf(Json.read(reply.body())));
    }

    /** Reads a result of a batch, and turns it into the answer to a lone call. */
    private static Answer resultOf(Members m) {
        int status = m.status();
        Duration retryAfter = status == 503 ? BATCH_RETRY_AFTER : Duration.ZERO;
        return answerOf(m, status, retryAfter, m.optionalFlag("replayed"), OPERATION.pattern());
    }

    private static Answer answerOf(Members m, int status, Duration retryAfter, boolean replayed, String prefix) {
        if (m.has("allowed") && status == (m.flag("allowed") ? 200 : 429)) {
            return new Answer.Decided(decisionOf(m, replayed));
        }
        if (status == 200 && !m.has("allowed") && m.has("confirmed")) {
            m.flag("confirmed"); // false if no limit depends on it
            return new Answer.Confirmed();
        }
        return problemOf(m, status, retryAfter, prefix);
    }

    private static Failure problemOf(Members m, int status, Duration retryAfter, String prefix) {
        if (status < 400 || status == 429 || m.status() != status) {
            throw new Unreadable("its status and its members disagree");
        }
        Optional<String> field = m.optionalText("field")
                .map(f -> f.replaceFirst(prefix, "").replace("Idempotency-Key", "idempotency_key"));
        Problem problem = new Problem(
                m.text("type"), m.text("title"), status, m.text("detail"), field,
                m.optionalNamed("recorded", Recorded.class, Recorded.UNKNOWN));
        return Failure.ofProblem(problem, retryAfter);
    }

    private static Decision decisionOf(Members m, boolean replayed) {
        List<Decision> demands = m.optionalList("demands", d -> demandDecisionOf(Members.of(d)));
        return decisionOf(m, replayed, demands);
    }

    private static Decision demandDecisionOf(Members m) {
        return decisionOf(m, false, List.of());
    }

    private static Decision decisionOf(Members m, boolean replayed, List<Decision> demands) {
        boolean allowed = m.flag("allowed");
        return new Decision(
                allowed,
                m.has("would_allow") ? m.flag("would_allow") : allowed,
                m.text("policy"),
                m.integer("limit"),
                m.integer("remaining"),
                m.integer("used"),
                m.milliseconds("reset_after_ms"),
                m.wait("retry_after_ms"),
                m.list("limits", l -> limitOf(Members.of(l))),
                m.named("mode", Mode.class, Mode.UNKNOWN),
                m.optionalNamed("override", OverrideKind.class, OverrideKind.UNKNOWN),
                m.optionalFlag("blocked"),
                m.optionalNamed("reason", Reason.class, Reason.UNKNOWN),
                m.flag("degraded"),
                m.optionalNamed("recorded", Recorded.class, Recorded.UNKNOWN),
                m.optionalInteger("settled"),
                m.optionalInteger("over"),
                m.optionalText("receipt"),
                m.optionalText("release"),
                m.optionalText("reservation"),
                replayed,
                demands);
    }

    private static LimitDecision limitOf(Members m) {
        return new LimitDecision(
                m.text("name"),
                m.text("algorithm"),
                m.integer("limit"),
                m.milliseconds("window_ms"),
                m.flag("allowed"),
                m.integer("used"),
                m.integer("remaining"),
                m.milliseconds("reset_after_ms"),
                m.wait("retry_after_ms"),
                m.has("would_deny") ? Optional.of(m.flag("would_deny")) : Optional.empty());
    }

    private static Explanation explanationOf(Object value) {
        Members m = Members.of(value);
        return new Explanation(
                m.text("policy"),
                m.text("key"),
                m.flag("allowed"),
                m.flag("would_allow"),
                m.text("because"),
                m.text("detail"),
                m.wait("retry_after_ms"),
                m.list("denied_by", String::valueOf),
                m.named("mode", Mode.class, Mode.UNKNOWN),
                m.text("guarantee"),
                m.flag("degraded"),
                m.list("limits", l -> new Explanation.Limit(limitOf(Members.of(l)), Members.of(l).integer("policy_limit"))),
                m.hasValue("override") ? Optional.of(overrideOf(Members.of(m.values().get("override")))) : Optional.empty(),
                m.hasValue("block") ? Optional.of(blockOf(Members.of(m.values().get("block")))) : Optional.empty(),
                m.hasValue("reset_at") ? Optional.of(m.time("reset_at")) : Optional.empty(),
                m.optionalList("derived", Wire::explanationOf));
    }

    private static Explanation.OverrideInForce overrideOf(Members m) {
        return new Explanation.OverrideInForce(
                m.optionalText("prefix"),
                m.named("kind", OverrideKind.class, OverrideKind.UNKNOWN),
                m.optionalList("limits", l -> overrideLimitOf(Members.of(l))),
                m.hasValue("expires_at") ? Optional.of(m.time("expires_at")) : Optional.empty(),
                m.time("made_at"),
                m.optionalText("by"));
    }

    private static Explanation.OverrideLimit overrideLimitOf(Members m) {
        Optional<Long> burst = m.has("burst") ? Optional.of(m.integer("burst")) : Optional.empty();
        return new Explanation.OverrideLimit(m.text("name"), m.integer("limit"), burst);
    }

    private static Explanation.Block blockOf(Members m) {
        return new Explanation.Block(m.time("until"), m.integer("strikes"));
    }

    /** Splits bytes that arrive in parts into lines. */
    static final class Lines {
        private byte[] rest = {};

        /** Returns the lines that end in part, without their line ends. */
        List<byte[]> add(byte[] part) {
            List<byte[]> lines = new ArrayList<>();
            int from = 0;
            for (int at = 0; at < part.length; at++) {
                if (part[at] == '\n') {
                    lines.add(joined(part, from, at));
                    rest = new byte[0];
                    from = at + 1;
                }
            }
            rest = joined(part, from, part.length);
            return lines;
        }

        /** Returns the length of the unfinished line. */
        int restLength() {
            return rest.length;
        }

        private byte[] joined(byte[] part, int from, int to) {
            byte[] line = Arrays.copyOf(rest, rest.length + to - from);
            System.arraycopy(part, from, line, rest.length, to - from);
            return line;
        }
    }
}
