/** The headers of W3C Trace Context. */
export interface TraceContext {
  readonly traceparent?: string;
  readonly tracestate?: string;
}

const pattern = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|$)/;

/** Returns the trace of a request of several calls: the first sampled one, or else the first. */
export function traceOf(traces: readonly (TraceContext | undefined)[]): TraceContext | undefined {
  return traces.find((trace) => trace !== undefined && isSampled(trace)) ?? traces.find((trace) => trace !== undefined);
}

/** Returns the headers of Trace Context in `given`, and no others, such as baggage. */
export function traceFrom(given: TraceContext | undefined): TraceContext | undefined {
  const { traceparent = "", tracestate } = given ?? {};
  if (!pattern.test(traceparent)) {
    return undefined;
  }
  return tracestate ? { traceparent, tracestate } : { traceparent };
}

function isSampled({ traceparent = "" }: TraceContext): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1;
}
