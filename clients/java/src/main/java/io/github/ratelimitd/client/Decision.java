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
 * @param wouldAllow the verdict; differs from {@code allowed} only for a policy in mode shadow
 * @param policy the name of the policy
 * @param limit units of the tightest limit, as are {@code remaining}, {@code used} and {@code resetAfter}
 * @param remaining units that could be spent at once, after this call
 * @param used units after this call: exact up to the limit, beyond it a lower bound
 * @param resetAfter time until no units are used, in whole milliseconds
 * @param retryAfter time until the same call passes if no other call comes, in whole milliseconds: zero when it is
 *     allowed, and empty if no wait helps
 * @param limits the decision of each limit of the policy
 * @param mode how the policy is applied
 * @param override the override that decided; empty: none
 * @param blocked whether a block decided, after an earlier denial or by an override
 * @param reason the policy's rule about phone numbers that denied; empty: none
 * @param degraded whether the store, or the service, did not answer, so that something else decided
 * @param recorded for a degraded decision, whether the units count; empty: the units of an allowed take or record
 *     count
 * @param settled units that a settled reservation counts; empty: none, or each of {@code demands} has its own
 * @param over settled units beyond the reservation, which count whatever the limit
 * @param receipt the receipt by which recorded units can be refunded or confirmed once; empty: none were recorded
 * @param release a receipt for the units under {@code concurrent} limits. Refund it when the request has ended; this may be
 *     repeated. Empty: no such units
 * @param reservation the reservation by which a record settles held units; empty: no units are held
 * @param replayed whether this is the recorded answer to an earlier call with the same idempotency key
 * @param demands one decision for each of several demands, in their order; empty if there was one demand
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
    /** Returns the decision of a client that fails open. */
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
