package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// company has the calls that share some work.
type company struct {
	spans []trace.Span // of sampled calls
	calls int          // their number, sampled or not
}

type companyKey struct{}

// Together returns ctx for work that the calls with these contexts share: it is in the trace of each call that is sampled.
// A nil context is that of a call that is not traced.
func Together(ctx context.Context, calls []context.Context) context.Context {
	all := new(company)
	for _, call := range calls {
		all.add(call)
	}
	return context.WithValue(ctx, companyKey{}, all)
}

func (c *company) add(call context.Context) {
	if call == nil {
		c.calls++
		return
	}
	if those, ok := call.Value(companyKey{}).(*company); ok {
		c.spans, c.calls = append(c.spans, those.spans...), c.calls+those.calls
		return
	}
	c.calls++
	if span := trace.SpanFromContext(call); span.SpanContext().IsSampled() {
		c.spans = append(c.spans, span)
	}
}

// companyOf returns the calls that share the work with ctx.
func companyOf(ctx context.Context) (c company) {
	c.add(ctx)
	return c
}

// Sampled reports whether the work with ctx, which may be nil, is in a sampled trace.
func Sampled(ctx context.Context) bool {
	if ctx == nil {
		return false
	}
	if those, ok := ctx.Value(companyKey{}).(*company); ok {
		return len(those.spans) > 0
	}
	return trace.SpanContextFromContext(ctx).IsSampled()
}

// SampledID returns the id of a sampled trace that has the work with ctx, in hex; empty: there is none.
func SampledID(ctx context.Context) string {
	c := companyOf(ctx)
	if len(c.spans) == 0 {
		return ""
	}
	return c.spans[0].SpanContext().TraceID().String()
}

// Trip is a request to Cassandra that has ended.
type Trip struct {
	Statement  string // with a mark for each value; of a batch, the first
	Statements int    // 1, or the number in a batch
	Node       string // that was asked; empty: none was reached
	Attempt    int    // 0: the first
	Began      time.Time
	Ended      time.Time
	Err        error
}

// Add adds trip to the trace of each sampled call that it was made for, with the number of calls that shared it.
func (trip *Trip) Add(ctx context.Context) {
	c := companyOf(ctx)
	if len(c.spans) == 0 {
		return
	}
	operation, _, _ := strings.Cut(trip.Statement, " ")
	about := []attribute.KeyValue{
		attribute.String("db.system.name", "cassandra"), attribute.String("db.query.text", trip.Statement),
		attribute.Int("ratelimitd.trip.calls", c.calls),
	}
	if trip.Statements > 1 {
		operation = "BATCH"
		about = append(about, attribute.Int("db.operation.batch.size", trip.Statements))
	}
	if trip.Node != "" {
		about = append(about, attribute.String("server.address", trip.Node))
	}
	if trip.Attempt > 0 {
		about = append(about, attribute.Int("ratelimitd.trip.attempt", trip.Attempt))
	}
	for _, of := range c.spans {
		within := trace.ContextWithSpan(context.Background(), of)
		_, span := of.TracerProvider().Tracer(scope).Start(within, "cassandra "+operation,
			trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(trip.Began), trace.WithAttributes(about...))
		Span{span: span}.fail(trip.Err)
		span.End(trace.WithTimestamp(trip.Ended))
	}
}
