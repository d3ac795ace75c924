package client

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// traceOf returns whether ctx has a trace, and whether that is sampled.
func traceOf(ctx context.Context) join.Trace {
	switch span := trace.SpanContextFromContext(ctx); {
	case span.IsSampled():
		return join.Sampled
	case span.IsValid():
		return join.Unsampled
	}
	return join.Untraced
}

// inject adds the headers of W3C Trace Context for the span of ctx, if there is one.
func inject(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}
