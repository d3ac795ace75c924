package io.github.ratelimitd.spring;

import java.util.OptionalLong;

/**
 * Returns the limit of a request, under a policy that takes its limit from requests. A bean of this type is used by {@code
 * bean:NAME}. It must not block.
 *
 * <p>It must take the limit from the application's own data about its customer, such as the tariff of the principal's account,
 * never from the request itself: otherwise a sender could choose any limit.
 */
@FunctionalInterface
public interface LimitResolver {
    /**
     * Returns the limit.
     *
     * @param request the request
     * @return units, from 1 to the policy's max; empty: the policy's default
     */
    OptionalLong limitOf(LimitedRequest request);
}
