"""Finds a caller's trace, if OpenTelemetry's API is installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

try:
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # without it there are no traces
    _PROPAGATOR = None
else:
    _PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class Trace:
    headers: dict[str, str]
    """Those of W3C Trace Context."""
    sampled: bool


def current_trace() -> Trace | None:
    """Returns the caller's trace."""
    if _PROPAGATOR is None:
        return None
    context = _trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return Trace(headers, context.trace_flags.sampled)


def trace_of(traces: Iterable[Trace | None]) -> Trace | None:
    """Returns the trace of a request of several calls: the first sampled one, or else the first."""
    known = [trace for trace in traces if trace is not None]
    return next((trace for trace in known if trace.sampled), known[0] if known else None)
