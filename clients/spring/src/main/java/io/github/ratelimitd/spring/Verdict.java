package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.Decision;
import io.github.ratelimitd.client.LimitDecision;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;

/**
 * The verdict on a request.
 *
 * @param status of the answer; 0: the request passes
 * @param headers of the answer, even if a handler answers
 * @param body of the answer
 * @param decision ratelimitd's decision on a request that passes; null: none
 */
record Verdict(int status, Map<String, String> headers, String body, Decision decision) {
    /** A request without a decision passes. */
    static final Verdict UNDECIDED = new Verdict(0, Map.of(), "", null);

    private static final String TYPES = "https://iana.org/assignments/http-problem-types#";
    /** The greatest Integer of a structured field (RFC 9651, section 3.3.1). */
    private static final long MAX_FIELD_INTEGER = 999_999_999_999_999L;

    boolean passes() {
        return status == 0;
    }

    static Verdict of(Decision decision) {
        if (decision.allowed()) {
            return new Verdict(0, headersOf(decision), "", decision);
        }
        String wait = decision.retryAfter()
                .map(d -> "There is room for it in " + seconds(d) + " s.")
                .orElse("Waiting would not change that.");
        String detail = "This is over its limit. " + wait;
        return problem(429, "Quota Exceeded", detail, headersOf(decision), TYPES + "quota-exceeded");
    }

    /** Returns the headers of an answer whose body is written elsewhere. */
    static Map<String, String> withoutBody(Map<String, String> headers) {
        Map<String, String> copy = new LinkedHashMap<>(headers);
        copy.remove("Content-Type");
        return copy;
    }

    static Verdict unavailable() {
        String detail = "Nobody can tell whether this is within its limit. Try again shortly.";
        return problem(
                503, "Temporary Reduced Capacity", detail, Map.of("Retry-After", "1"),
                TYPES + "temporary-reduced-capacity");
    }

    static Verdict refused(int status, String title, String detail) {
        return problem(status, title, detail, Map.of(), "about:blank");
    }

    /** Answers with a problem of RFC 9457. */
    private static Verdict problem(int status, String title, String detail, Map<String, String> headers, String type) {
        Map<String, String> all = new LinkedHashMap<>(headers);
        all.put("Content-Type", "application/problem+json");
        String body = "{\"type\":\"" + type + "\",\"title\":\"" + title + "\",\"status\":" + status + ",\"detail\":\""
                + escaped(detail) + "\"}\n";
        return new Verdict(status, all, body, null);
    }

    private static String escaped(String text) {
        StringBuilder out = new StringBuilder();
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.toString();
    }

    /** Returns the headers of ratelimitd's own answers. A client that fails open has none. */
    static Map<String, String> headersOf(Decision d) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (d.limits().isEmpty()) {
            return headers;
        }
        List<LimitDecision> enforced =
                d.limits().stream().filter(l -> l.wouldDeny().isEmpty()).toList();
        headers.put("X-RateLimit-Limit", Long.toString(d.limit()));
        headers.put("X-RateLimit-Remaining", Long.toString(d.remaining()));
        headers.put("X-RateLimit-Reset", Long.toString(seconds(d.resetAfter())));
        headers.put("RateLimit-Policy", items(enforced, Verdict::policyItem));
        headers.put("RateLimit", items(enforced, l -> limitItem(d, l)));
        if (!d.allowed() && d.retryAfter().isPresent()) {
            headers.put("Retry-After", Long.toString(Math.max(1, seconds(d.retryAfter().get()))));
        }
        return headers;
    }

    /**
     * Returns the time until there are more units, as in ratelimitd's own answers. Empty: no wait helps, or that is
     * later than Retry-After.
     */
    private static Optional<Duration> moreAfter(Decision d, LimitDecision l) {
        Optional<Duration> after = l.allowed() ? Optional.of(l.resetAfter()) : l.retryAfter();
        if (d.allowed() || d.retryAfter().isEmpty()) {
            return after;
        }
        return after.filter(a -> a.compareTo(d.retryAfter().get()) <= 0);
    }

    private static String items(List<LimitDecision> limits, Function<LimitDecision, String> item) {
        return String.join(", ", limits.stream().map(item).toList());
    }

    private static String policyItem(LimitDecision l) {
        boolean concurrent = l.algorithm().equals("concurrent"); // it has no window
        return item(l, "q", l.limit()) + (concurrent ? ";qu=\"concurrent-requests\"" : ";w=" + seconds(l.window()));
    }

    private static String limitItem(Decision d, LimitDecision l) {
        return item(l, "r", l.remaining()) + moreAfter(d, l).map(after -> ";t=" + seconds(after)).orElse("");
    }

    private static String item(LimitDecision l, String parameter, long units) {
        return "\"" + l.name() + "\";" + parameter + "=" + Math.min(units, MAX_FIELD_INTEGER);
    }

    /** In whole seconds, rounded up. */
    private static long seconds(Duration time) {
        return (time.toMillis() + 999) / 1000;
    }
}
