package io.github.ratelimitd.client;

import java.util.Objects;
import java.util.OptionalLong;

/**
 * Some units of one policy for one identifier.
 *
 * @param policy the name of the policy
 * @param identifier the caller that is counted, such as a phone number: 1 to 1024 bytes of UTF-8. The service stores a
 *     only a hash of it.
 * @param cost units, from 1 to 1,000,000,000,000. The service refuses others with an {@link InvalidCallException} whose
 *     field is {@code cost}.
 * @param limit how many units the identifier may have, under a policy that takes its limit from requests; empty: the
 *     policy's default. Take it from the application's own data about its customer, never from an end user's request.
 */
public record Demand(String policy, String identifier, long cost, OptionalLong limit) {
    /**
     * Makes a demand.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @param cost units
     * @param limit how many units the identifier may have; empty: the policy's default
     * @throws NullPointerException if an argument is null
     */
    public Demand {
        Objects.requireNonNull(policy, "policy");
        Objects.requireNonNull(identifier, "identifier");
        Objects.requireNonNull(limit, "limit");
    }

    /**
     * Makes a demand without a limit of its own.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @param cost units
     * @throws NullPointerException if {@code policy} or {@code identifier} is null
     */
    public Demand(String policy, String identifier, long cost) {
        this(policy, identifier, cost, OptionalLong.empty());
    }

    /**
     * Makes a demand of one unit.
     *
     * @param policy the name of the policy
     * @param identifier the caller that is counted
     * @throws NullPointerException if {@code policy} or {@code identifier} is null
     */
    public Demand(String policy, String identifier) {
        this(policy, identifier, 1);
    }

    /**
     * Returns this demand with a limit, under a policy that takes its limit from requests. The service refuses one that
     * is out of the policy's range with an {@link InvalidCallException} whose field is {@code limit}.
     *
     * @param units how many units the identifier may have, from 1 to the policy's max
     * @return the demand
     */
    public Demand withLimit(long units) {
        return new Demand(policy, identifier, cost, OptionalLong.of(units));
    }

    /**
     * Names the policy, the cost and the limit. It leaves out the identifier, because a demand may be logged.
     *
     * @return a text without the identifier
     */
    @Override
    public String toString() {
        String own = limit.isPresent() ? ", limit=" + limit.getAsLong() : "";
        return "Demand[policy=" + policy + ", cost=" + cost + own + "]";
    }
}
