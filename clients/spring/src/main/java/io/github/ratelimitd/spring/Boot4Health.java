package io.github.ratelimitd.spring;

import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;

/** Reports a probe to the Actuator of Spring Boot 4. */
final class Boot4Health implements HealthIndicator {
    private final Probe probe;

    Boot4Health(Probe probe) {
        this.probe = probe;
    }

    @Override
    public Health health() {
        Probe.Finding finding = probe.ask();
        Health.Builder health = finding.decides() == null ? Health.unknown() : finding.decides() ? Health.up() : Health.down();
        return health.withDetail("ratelimitd", finding.detail()).build();
    }
}
