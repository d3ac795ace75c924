package io.github.ratelimitd.client;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * Why an identifier would be allowed or denied one unit now.
 *
 * @param policy the name of the policy
 * @param key the hash under which the identifier is counted, in hex
 * @param allowed whether a check of one unit is allowed
 * @param wouldAllow the verdict, without regard to the mode
 * @param because the cause: {@code off}, {@code override}, {@code country}, {@code number_type}, {@code block},
 *     {@code store}, {@code limit}, {@code derived} or {@code room}
 * @param detail the same in a sentence
 * @param retryAfter time until a check of one unit is allowed, in whole milliseconds: zero if it is allowed now, and empty if no
 *     wait helps
 * @param deniedBy the limits that have no room
 * @param mode how the policy is applied
 * @param guarantee how instances decide together: {@code counted} or {@code local}
 * @param degraded whether the store did not answer, so that {@code limits} and {@code resetAt} are not known
 * @param limits the state of each limit
 * @param override the override in force; empty: none
 * @param block the block after a denial; empty: none
 * @param resetAt the instant up to which counts are forgotten; empty: none
 * @param derived the same for the identifiers that the policy derives from this one
 */
public record Explanation(
        String policy,
        String key,
        boolean allowed,
        boolean wouldAllow,
        String because,
        String detail,
        Optional<Duration> retryAfter,
        List<String> deniedBy,
        Mode mode,
        String guarantee,
        boolean degraded,
        List<Limit> limits,
        Optional<OverrideInForce> override,
        Optional<Block> block,
        Optional<Instant> resetAt,
        List<Explanation> derived) {
    /**
     * The state of one limit.
     *
     * @param decision the decision of the limit
     * @param policyLimit the policy's own number of units, if an override has another
     */
    public record Limit(LimitDecision decision, long policyLimit) {}

    /**
     * An administrator's override for an identifier.
     *
     * @param prefix the prefix of its identifiers; empty: it is for this one
     * @param kind the kind of the override
     * @param limits the limits with other numbers of units
     * @param expiresAt when it ends; empty: it has no end
     * @param madeAt when it was made
     * @param by the name of the caller that made it; empty: unknown
     */
    public record OverrideInForce(
            Optional<String> prefix,
            OverrideKind kind,
            List<OverrideLimit> limits,
            Optional<Instant> expiresAt,
            Instant madeAt,
            Optional<String> by) {}

    /**
     * A limit with another number of units.
     *
     * @param name the name of the limit
     * @param limit units
     * @param burst the most tokens that a bucket holds; empty: the policy's number
     */
    public record OverrideLimit(String name, long limit, Optional<Long> burst) {}

    /**
     * A block, which denies until a time, whatever the counts.
     *
     * @param until when it ends
     * @param strikes the number of blocks in a row
     */
    public record Block(Instant until, long strikes) {}
}
