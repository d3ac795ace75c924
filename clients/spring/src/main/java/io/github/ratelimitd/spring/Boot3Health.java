package io.github.ratelimitd.spring;

import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;

/** Reports a probe to the Actuator of Spring Boot 3. */
final class Boot3Health implements HealthIndicator {
    private final Probe probe;

    Boot3Health(Probe probe) {
        this.probe = probe;
    }

    @Override
    public Health health() {
        Probe.Finding finding = probe.ask();
        Health.Builder health = finding.decides() == null ? Health.unknown() : finding.decides() ? Health.up() : Health.down();
        return health.withDetail("ratelimitd", finding.detail()).build();
    }
}
