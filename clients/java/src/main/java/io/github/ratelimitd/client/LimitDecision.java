package io.github.ratelimitd.client;

import java.time.Duration;
import java.util.Optional;

/**
 * The verdict of one limit of a policy.
 *
 * @param name the name of the limit
 * @param algorithm how it counts, such as {@code sliding-log}
 * @param limit units
 * @param window the window, in whole milliseconds
 * @param allowed whether the limit has room
 * @param used units after the call: exact up to the limit, beyond it a lower bound
 * @param remaining units that could be spent at once
 * @param resetAfter time until no units are used, in whole milliseconds
 * @param retryAfter time until it has room if no other call comes, in whole milliseconds; empty: no wait helps
 * @param wouldDeny for a limit in shadow, which denies nothing, whether it would deny this call; empty: the limit is
 *     enforced
 */
public record LimitDecision(
        String name,
        String algorithm,
        long limit,
        Duration window,
        boolean allowed,
        long used,
        long remaining,
        Duration resetAfter,
        Optional<Duration> retryAfter,
        Optional<Boolean> wouldDeny) {}
