package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// company is the calls that something is done for at once.
type company struct {
	spans []trace.Span // of those that are traced
	calls int          // all of them
}

type companyKey struct{}

// Together returns ctx for work that is done at once for the calls that have these contexts: each of them that
// is traced has it in its own trace. A nil context is a call's that is not traced. Where none is, calls are
// only counted, for others that share with them.
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

// companyOf returns the calls that something with ctx is done for.
func companyOf(ctx context.Context) (c company) {
	c.add(ctx)
	return c
}

// Sampled reports whether somebody will see a trace of what ctx, or nil, is of.
func Sampled(ctx context.Context) bool {
	if ctx == nil {
		return false
	}
	if those, ok := ctx.Value(companyKey{}).(*company); ok {
		return len(those.spans) > 0
	}
	return trace.SpanContextFromContext(ctx).IsSampled()
}

// SampledID returns the id of a trace that the work with ctx belongs to, in hex; empty: there is none that
// anybody will see.
func SampledID(ctx context.Context) string {
	c := companyOf(ctx)
	if len(c.spans) == 0 {
		return ""
	}
	return c.spans[0].SpanContext().TraceID().String()
}

// Trip is a request to Cassandra that is over.
type Trip struct {
	Statement  string // with a mark for each value; of several, the first
	Statements int    // 1, unless it is a batch
	Node       string // that was asked; empty: none could be
	Attempt    int    // 0: the first
	Began      time.Time
	Ended      time.Time
	Err        error
}

// Add adds trip to the trace of each call that it was made for, if it is traced, with how many shared it.
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
