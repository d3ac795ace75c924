package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Runs without OpenTelemetry on the class path, as pom.xml says. */
class WithoutOpenTelemetryTest {
    @Test
    void requestsAreInNoTrace() {
        assertThrows(ClassNotFoundException.class, () -> Class.forName("io.opentelemetry.api.trace.Span"));
        try (Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client =
                        RatelimitdClient.builder(service.url()).timeout(Duration.ofSeconds(60)).build()) {
            assertTrue(client.take(new Demand("sms-send", "a")).allowed());
            assertFalse(service.requests.get(0).headers().containsKey("traceparent"));
        }
    }
}
