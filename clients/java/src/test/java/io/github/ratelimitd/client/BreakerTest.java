package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class BreakerTest {
    private static final long SECOND = Duration.ofSeconds(1).toNanos();

    private final List<String> told = new ArrayList<>();
    private final Breaker breaker =
            new Breaker(2, Duration.ofSeconds(1), () -> told.add("open"), () -> told.add("closed"));

    @Test
    void afterFailuresInARowOneRequestAtATimeProbes() {
        breaker.failed(0);
        assertTrue(breaker.admit(0));
        breaker.failed(0);
        assertFalse(breaker.admit(SECOND - 1));
        assertTrue(breaker.admit(SECOND), "a probe");
        assertFalse(breaker.admit(SECOND), "a second one beside it");
        breaker.failed(SECOND);
        assertFalse(breaker.admit(2 * SECOND - 1));
        assertTrue(breaker.admit(2 * SECOND));
        breaker.abandoned();
        assertTrue(breaker.admit(2 * SECOND), "the last probe told nothing");
        breaker.answered(2 * SECOND);
        assertTrue(breaker.admit(2 * SECOND));
        assertEquals(List.of("open", "closed"), told);
    }

    @Test
    void failuresAmongAnswersDoNotOpenIt() {
        breaker.answered(0);
        for (int i = 0; i < 10; i++) {
            breaker.failed(Breaker.SILENCE.toNanos() - 1);
        }
        assertTrue(breaker.admit(Breaker.SILENCE.toNanos()));
        breaker.failed(Breaker.SILENCE.toNanos());
        assertFalse(breaker.admit(Breaker.SILENCE.toNanos()));
    }
}
