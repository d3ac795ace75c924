package io.github.ratelimitd.client;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * Why an identifier would be allowed or denied one unit now.
 *
 * @param policy the name of the policy
 * @param key the hash that the identifier is counted under, in hex
 * @param allowed whether a check of one unit is allowed
 * @param wouldAllow the verdict, whatever the mode makes of it
 * @param because what decides: {@code off}, {@code override}, {@code country}, {@code number_type}, {@code block},
 *     {@code store}, {@code limit}, {@code derived} or {@code room}
 * @param detail the same in a sentence
 * @param retryAfter time until a check of one unit is allowed, in whole milliseconds: zero when it is, and empty when no
 *     wait helps
 * @param deniedBy the limits that have no room
 * @param mode how the policy is applied
 * @param guarantee how instances decide together: {@code counted} or {@code local}
 * @param degraded whether the store did not answer, so that {@code limits} and {@code resetAt} are not known
 * @param limits the state of each limit
 * @param override the override in force; empty: there is none
 * @param block the block that follows a denial; empty: there is none
 * @param resetAt up to when earlier counts are forgotten; empty: none are
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
     * @param policyLimit the units that the policy gives, where an override gives others
     */
    public record Limit(LimitDecision decision, long policyLimit) {}

    /**
     * What an administrator has decided otherwise for an identifier.
     *
     * @param prefix the prefix of the identifiers that it is for; empty: it is for this one
     * @param kind the kind of the override
     * @param limits the limits that hold another number of units
     * @param expiresAt when it ends; empty: it has no end
     * @param madeAt when it was made
     * @param by the name of the caller that made it; empty: the service knows none
     */
    public record OverrideInForce(
            Optional<String> prefix,
            OverrideKind kind,
            List<OverrideLimit> limits,
            Optional<Instant> expiresAt,
            Instant madeAt,
            Optional<String> by) {}

    /**
     * A limit that holds another number of units.
     *
     * @param name the name of the limit
     * @param limit units
     * @param burst tokens that a bucket holds; empty: as the policy has it
     */
    public record OverrideLimit(String name, long limit, Optional<Long> burst) {}

    /**
     * A block denies until a time, whatever is counted.
     *
     * @param until when it ends
     * @param strikes how many blocks there were in a row
     */
    public record Block(Instant until, long strikes) {}
}
