package io.github.ratelimitd.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.regex.Pattern;

/** A call in the form in which it is sent. */
final class PreparedCall {
    private static final Duration MAX_RESERVE = Duration.ofHours(1);
    private static final Pattern KEY = Pattern.compile("[!-~]([ -~]{0,253}[!-~])?");
    private static final String AS_ANSWERED = "It must be given back as it was answered.";
    /** The most bytes of a request with one call. */
    private static final int MAX_BODY = 64 << 10;

    final Call call;
    final String op;
    /** The idempotency key; null: none. */
    final String idempotencyKey;
    /** The caller's trace; null: none. */
    final TraceContext trace;
    /** The body of a request of its own. */
    final byte[] body;
    /** The operation in a batch. */
    final byte[] operation;
    /** The call. */
    final List<Target> targets;

    /** The policies and identifiers of its demands, which alike calls share. */
    record Target(String policy, String identifier) {}

    /**
     * Checks a call, and writes it.
     *
     * @param makeKey whether a take or record gets an idempotency key
     * @throws InvalidCallException if the call could not be sent, or would spoil the other calls of its request
     */
    PreparedCall(Call call, boolean makeKey, TraceContext trace) {
        this.call = call;
        this.op = CallException.nameOf(call.op());
        this.trace = trace;
        validate();
        this.idempotencyKey = keyOf(makeKey);
        Map<String, Object> members = members();
        this.body = utf8(members);
        if (body.length > MAX_BODY) {
            throw refused("demands", "They make the call longer than " + MAX_BODY + " bytes.");
        }
        Map<String, Object> whole = new LinkedHashMap<>();
        whole.put("op", op);
        whole.putAll(members);
        if (idempotencyKey != null) {
            whole.put("idempotency_key", idempotencyKey);
        }
        this.operation = utf8(whole);
        this.targets = call.demands().stream().map(d -> new Target(d.policy(), d.identifier())).toList();
    }

    /** Returns whether units count after this failure; null: the units are unknown. */
    Recorded recordedAfter(Failure failure) {
        return isConfirm() ? failure.stillCounts() : failure.recorded(leavesUnits());
    }

    /** Returns whether it may be sent again after this attempt: it certainly had no effect, or is idempotent. */
    boolean repeatableAfter(Recorded recorded) {
        return recorded == Recorded.NO || idempotencyKey != null || isConfirm();
    }

    boolean isConfirm() {
        return call.op() == Op.CONFIRM;
    }

    private boolean leavesUnits() {
        return call.op() != Op.CHECK || call.reserve().isPresent();
    }

    private String keyOf(boolean makeKey) {
        if (isConfirm() || !leavesUnits()) {
            return null; // it counts at most once anyway, and a batch would refuse a key
        }
        boolean made = makeKey && call.op() != Op.CHECK;
        return call.idempotencyKey().orElse(made ? UUID.randomUUID().toString() : null);
    }

    private Map<String, Object> members() {
        Map<String, Object> members = new LinkedHashMap<>();
        List<Map<String, Object>> demands = call.demands().stream().map(PreparedCall::membersOf).toList();
        if (demands.size() == 1) {
            members.putAll(demands.get(0));
        } else if (demands.size() > 1) {
            members.put("demands", demands);
        }
        call.cost().ifPresent(units -> members.put("cost", units));
        call.reserve().ifPresent(hold -> members.put("reserve_ms", hold.toMillis()));
        call.reservation().ifPresent(reservation -> members.put("reservation", reservation));
        call.receipt().ifPresent(receipt -> members.put("receipt", receipt));
        return members;
    }

    private static Map<String, Object> membersOf(Demand demand) {
        Map<String, Object> members = new LinkedHashMap<>();
        members.put("policy", demand.policy());
        members.put("identifier", demand.identifier());
        if (demand.cost() != 1) {
            members.put("cost", demand.cost());
        }
        demand.limit().ifPresent(units -> members.put("limit", units));
        return members;
    }

    static byte[] utf8(Object value) {
        return Json.write(value).getBytes(StandardCharsets.UTF_8);
    }

    private InvalidCallException refused(String field, String detail) {
        return CallException.refused(op, field, detail);
    }

    private void validate() {
        if (isConfirm()) {
            validateConfirm();
            return;
        }
        if (call.receipt().isPresent()) {
            throw refused("receipt", "Only a confirm has it.");
        }
        if (call.demands().isEmpty() && call.reservation().isEmpty()) {
            throw refused("demands", "A call has at least one demand.");
        }
        call.reserve().ifPresent(this::validateReserve);
        if (call.reservation().isPresent() && call.op() != Op.RECORD) {
            throw refused("reservation", "Only a record settles a reservation.");
        }
        if (call.reservation().filter(r -> !isReceipt(r)).isPresent()) {
            throw refused("reservation", AS_ANSWERED);
        }
        boolean settlesAlone = call.reservation().isPresent() && call.demands().isEmpty();
        if (call.cost().isPresent() && (call.cost().getAsLong() < 0 || !settlesAlone)) {
            throw refused("cost", "It must be 0 or more, beside a reservation and no demands.");
        }
        if (call.idempotencyKey().filter(key -> !KEY.matcher(key).matches()).isPresent()) {
            throw refused(
                    "idempotency_key", "It must be 1 to 255 bytes of printable ASCII, without a blank at either end.");
        }
        for (int i = 0; i < call.demands().size(); i++) {
            Demand demand = call.demands().get(i);
            String place = call.demands().size() > 1 ? "demands[" + i + "]." : "";
            validateUnicode(op, place + "policy", demand.policy());
            validateUnicode(op, place + "identifier", demand.identifier());
        }
    }

    private void validateConfirm() {
        validateReceipt(op, call.receipt().orElse(""));
        Optional<String> key = call.idempotencyKey();
        boolean reserves = call.reserve().isPresent() || call.reservation().isPresent() || call.cost().isPresent();
        if (!call.demands().isEmpty() || reserves || key.isPresent()) {
            throw refused("op", "A confirm has a receipt, and nothing else.");
        }
    }

    private void validateReserve(Duration hold) {
        boolean whole = hold.getNano() % 1_000_000 == 0;
        if (!whole || hold.isZero() || hold.isNegative() || hold.compareTo(MAX_RESERVE) > 0) {
            throw refused("reserve_ms", "It must be whole milliseconds, from 1 to an hour.");
        }
        if (call.op() != Op.CHECK) {
            throw refused("reserve_ms", "Only a check reserves.");
        }
    }

    /** Throws if a receipt can't be one of the service. */
    static void validateReceipt(String op, String receipt) {
        if (!isReceipt(receipt)) {
            throw CallException.refused(op, "receipt", AS_ANSWERED);
        }
    }

    private static boolean isReceipt(String text) {
        return !text.isEmpty() && Json.isUnicode(text);
    }

    static void validateUnicode(String op, String field, String text) {
        if (!Json.isUnicode(text)) {
            throw CallException.refused(op, field, "It must be valid Unicode, without a lone surrogate.");
        }
    }
}
