package io.github.ratelimitd.spring;

import java.util.OptionalLong;

/**
 * Brings the limit of a request, under a policy that takes its limit from requests. A bean of this type is used by {@code
 * bean:NAME}. It must not block.
 *
 * <p>It must take the limit from what the application knows of its customer, such as the tariff of the principal's account,
 * never from what the request says: a sender could choose any limit then.
 */
@FunctionalInterface
public interface LimitResolver {
    /**
     * Returns the limit.
     *
     * @param request the request
     * @return units, from 1 to the policy's max; empty: the policy's default holds
     */
    OptionalLong limitOf(LimitedRequest request);
}
