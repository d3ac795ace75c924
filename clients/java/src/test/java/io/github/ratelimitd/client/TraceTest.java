package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Scope;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class TraceTest {
    private static final String TRACE = "0af7651916cd43dd8448eb211c80319c";
    private static final String SPAN = "b7ad6b7169203331";

    private static Scope in(boolean sampled) {
        TraceFlags flags = sampled ? TraceFlags.getSampled() : TraceFlags.getDefault();
        TraceState state = TraceState.builder().put("vendor", "value").build();
        return Span.wrap(SpanContext.create(TRACE, SPAN, flags, state)).makeCurrent();
    }

    @Test
    void requestsCarryTheTraceOfTheCaller() {
        try (Scripted service = new Scripted(Scripted.allow(), Scripted.allow(), Scripted.answer(204, Map.of(), ""));
                RatelimitdClient client = RatelimitdClient.builder(service.url())
                        .timeout(Duration.ofSeconds(60))
                        .build()) {
            Scope scope = in(true);
            try {
                client.take(new Demand("sms-send", "a"));
                client.batch(List.of(Call.check(new Demand("sms-send", "a")), Call.check(new Demand("sms-send", "b"))));
                client.reset("sms-send", "a");
            } finally {
                scope.close();
            }
            client.reset("sms-send", "a");
            for (Scripted.Request request : service.requests.subList(0, 3)) {
                assertEquals("00-" + TRACE + "-" + SPAN + "-01", request.headers().get("traceparent"), request.path());
                assertEquals("vendor=value", request.headers().get("tracestate"));
            }
            assertFalse(service.requests.get(3).headers().containsKey("traceparent"));
        }
    }

    @Test
    void aRequestOfSeveralCallsIsInTheFirstTraceThatIsSampled() {
        TraceContext unsampled = new TraceContext("a", "", false);
        TraceContext sampled = new TraceContext("b", "", true);
        assertEquals(sampled, TraceContext.of(callsIn(null, unsampled, sampled, new TraceContext("c", "", true))));
        assertEquals(unsampled, TraceContext.of(callsIn(null, unsampled)));
        assertNull(TraceContext.of(callsIn(null, null)));
    }

    @Test
    @Timeout(60)
    void aTraceThatCannotBeSentFailsItsCallAndNothingElse() {
        try (Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client = RatelimitdClient.builder(service.url())
                        .timeout(Duration.ofSeconds(60))
                        .build()) {
            Scope scope = Span.wrap(new Broken()).makeCurrent();
            try {
                UnavailableException error =
                        assertThrows(UnavailableException.class, () -> client.take(new Demand("sms-send", "a")));
                assertEquals(Optional.of(Recorded.NO), error.recorded());
            } finally {
                scope.close();
            }
            assertTrue(client.take(new Demand("sms-send", "a")).allowed());
        }
    }

    /** The context of a tracer with ids that are invalid in headers. */
    private static final class Broken implements SpanContext {
        @Override
        public String getTraceId() {
            return TRACE.replace('0', '\n');
        }

        @Override
        public String getSpanId() {
            return SPAN;
        }

        @Override
        public boolean isValid() {
            return true;
        }

        @Override
        public TraceFlags getTraceFlags() {
            return TraceFlags.getSampled();
        }

        @Override
        public TraceState getTraceState() {
            return TraceState.getDefault();
        }

        @Override
        public boolean isRemote() {
            return false;
        }
    }

    private static List<PreparedCall> callsIn(TraceContext... traces) {
        Call call = Call.check(new Demand("sms-send", "a"));
        return Arrays.stream(traces).map(trace -> new PreparedCall(call, false, trace)).toList();
    }
}
