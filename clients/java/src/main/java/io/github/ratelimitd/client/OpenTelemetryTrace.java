package io.github.ratelimitd.client;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import java.util.HashMap;
import java.util.Map;

/** Reads the current trace with OpenTelemetry's API. Only this class may use that API. */
final class OpenTelemetryTrace {
    private OpenTelemetryTrace() {}

    /** Returns the trace, or null if the calling thread is in none. */
    static TraceContext current() {
        SpanContext span = Span.current().getSpanContext();
        if (!span.isValid()) {
            return null;
        }
        Map<String, String> headers = new HashMap<>();
        W3CTraceContextPropagator.getInstance().inject(Context.current(), headers, Map::put);
        return new TraceContext(headers.get("traceparent"), headers.getOrDefault("tracestate", ""), span.isSampled());
    }
}
