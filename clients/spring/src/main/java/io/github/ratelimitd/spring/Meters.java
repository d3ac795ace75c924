package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.RatelimitdClient;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Counts for Micrometer: requests by policy and outcome, those that could not release units, and calls that failed open. */
final class Meters implements MeterBinder, Limiter.Outcomes {
    private final RatelimitdClient client;
    private final List<MeterRegistry> registries = new CopyOnWriteArrayList<>();

    Meters(RatelimitdClient client) {
        this.client = client;
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        registries.add(registry);
        FunctionCounter.builder("ratelimitd.failed.open", client, RatelimitdClient::failedOpen)
                .description("Calls that the client allowed although nobody decided them.")
                .register(registry);
    }

    @Override
    public void count(String policies, String outcome) {
        for (MeterRegistry registry : registries) {
            registry.counter("ratelimitd.requests", "policy", policies, "outcome", outcome).increment();
        }
    }

    @Override
    public void unreleased(String policies) {
        for (MeterRegistry registry : registries) {
            registry.counter("ratelimitd.unreleased", "policy", policies).increment();
        }
    }
}
