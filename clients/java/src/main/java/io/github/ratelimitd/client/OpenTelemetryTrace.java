package io.github.ratelimitd.client;

import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import java.util.HashMap;
import java.util.Map;

/** Reads the current trace by OpenTelemetry's API. Nothing else in the client may name that API. */
final class OpenTelemetryTrace {
    private OpenTelemetryTrace() {}

    /** Returns null where the calling thread is in no trace. */
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
