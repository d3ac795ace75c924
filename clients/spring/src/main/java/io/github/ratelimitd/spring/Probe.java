package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.CallException;
import io.github.ratelimitd.client.Decision;
import io.github.ratelimitd.client.Demand;
import io.github.ratelimitd.client.RatelimitdClient;

/** Asks whether ratelimitd decides, by a check, which records nothing. Frameworks' versions report it each in their way. */
final class Probe {
    private final RatelimitdClient client;
    private final String policy;

    /** Makes a probe. An empty policy: none is known. */
    Probe(RatelimitdClient client, String policy) {
        this.client = client;
        this.policy = policy;
    }

    /**
     * What a probe found.
     *
     * @param decides null: it is not known
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
