package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The service's answer to a call. With several demands it describes the tightest limit, except that {@code allowed},
 * {@code wouldAllow}, {@code retryAfter} and {@code degraded} are those of all.
 *
 * @param allowed whether the call may go on
 * @param wouldAllow the verdict: that of {@code allowed}, but for a policy in mode shadow
 * @param policy the name of the policy
 * @param limit units of the tightest limit, as are {@code remaining}, {@code used} and {@code resetAfter}
 * @param remaining units that could be spent at once, after this call
 * @param used units after this call: exact up to the limit, past it a lower bound
 * @param resetAfter time until the limit is whole again, in whole milliseconds
 * @param retryAfter time until the same call passes if no other call comes, in whole milliseconds: zero when it is
 *     allowed, and empty when no wait helps
 * @param limits the decision of each limit of the policy
 * @param mode how the policy is applied
 * @param override the override that decided; empty: none did
 * @param blocked whether a block decided, after an earlier denial or by an override
 * @param reason the policy's rule about phone numbers that denies; empty: none does
 * @param degraded whether the store, or the service, did not answer, so that something else decided
 * @param recorded whether the units count, of a degraded decision; empty: units of a take or record that is allowed
 *     count, and no others
 * @param settled units that a settled reservation counts; empty: none was settled, or each of {@code demands} has its own
 * @param over of the settled units, those that the reservation did not hold: they count whatever the limit
 * @param receipt by which the units that were recorded can be refunded or confirmed once; empty: none were
 * @param release a receipt of the units under {@code concurrent} limits alone, to be refunded when the request has ended,
 *     however often; empty: there are none
 * @param reservation by which a record settles the units that a check holds; empty: it holds none
 * @param replayed whether this is the recorded answer to an earlier call with the same idempotency key
 * @param demands one decision for each of several demands, in their order; empty: there was one
 */
public record Decision(
        boolean allowed,
        boolean wouldAllow,
        String policy,
        long limit,
        long remaining,
        long used,
        Duration resetAfter,
        Optional<Duration> retryAfter,
        List<LimitDecision> limits,
        Mode mode,
        Optional<OverrideKind> override,
        boolean blocked,
        Optional<Reason> reason,
        boolean degraded,
        Optional<Recorded> recorded,
        OptionalLong settled,
        OptionalLong over,
        Optional<String> receipt,
        Optional<String> release,
        Optional<String> reservation,
        boolean replayed,
        List<Decision> demands) {
    /** Returns the decision of a call that nobody decided, by a client that fails open. */
    static Decision failedOpen(Call call, Optional<Recorded> recorded) {
        List<Decision> each =
                call.demands().stream().map(d -> failedOpen(d.policy(), recorded, List.of())).toList();
        String policy = each.isEmpty() ? "" : each.get(0).policy();
        return failedOpen(policy, recorded, each.size() > 1 ? each : List.of());
    }

    private static Decision failedOpen(String policy, Optional<Recorded> recorded, List<Decision> demands) {
        return new Decision(
                true, true, policy, 0, 0, 0, Duration.ZERO, Optional.of(Duration.ZERO), List.of(), Mode.ENFORCE,
                Optional.empty(), false, Optional.empty(), true, recorded, OptionalLong.empty(), OptionalLong.empty(),
                Optional.empty(), Optional.empty(), Optional.empty(), false, demands);
    }
}
