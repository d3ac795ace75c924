package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.CallException;
import io.github.ratelimitd.client.Decision;
import io.github.ratelimitd.client.Demand;
import io.github.ratelimitd.client.RatelimitdClient;

/** Checks a policy to find out whether ratelimitd decides. That records nothing. Each version of Spring Boot reports it in its own way. */
final class Probe {
    private final RatelimitdClient client;
    private final String policy;

    /** Makes a probe. policy is empty if none is known. */
    Probe(RatelimitdClient client, String policy) {
        this.client = client;
        this.policy = policy;
    }

    /**
     * The result of a probe.
     *
     * @param decides null: unknown
     */
    record Finding(Boolean decides, String detail) {}

    Finding ask() {
        if (policy.isEmpty()) {
            return new Finding(null, "set ratelimitd.health-policy to a policy that is asked for");
        }
        try {
            Decision decision = client.check(new Demand(policy, "health"));
            boolean gone = decision.degraded() && decision.limits().isEmpty();
            return new Finding(!gone, decision.degraded() ? "degraded: the store, or the service, does not answer" : policy);
        } catch (CallException e) {
            return new Finding(false, e.getMessage());
        }
    }
}
