package io.github.ratelimitd.client;

import java.util.List;

/**
 * The headers of W3C Trace Context.
 *
 * @param traceparent the trace and the span
 * @param tracestate empty: none
 * @param sampled whether the trace is recorded
 */
record TraceContext(String traceparent, String tracestate, boolean sampled) {
    private static final boolean OPEN_TELEMETRY = isPresent("io.opentelemetry.api.trace.Span");

    /** Returns the calling thread's trace, if OpenTelemetry is on the class path; null: none. */
    static TraceContext current() {
        return OPEN_TELEMETRY ? OpenTelemetryTrace.current() : null;
    }

    /** Returns the trace of a request of several calls: the first sampled one, or else the first. */
    static TraceContext of(List<PreparedCall> calls) {
        TraceContext first = null;
        for (PreparedCall call : calls) {
            if (call.trace != null && call.trace.sampled) {
                return call.trace;
            }
            first = first == null ? call.trace : first;
        }
        return first;
    }

    private static boolean isPresent(String name) {
        try {
            Class.forName(name, false, TraceContext.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException | LinkageError e) {
            return false;
        }
    }
}
