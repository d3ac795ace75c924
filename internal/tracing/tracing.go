// Package tracing follows a request from where it comes in, over the instance that owns its key, to
// the trips to Cassandra that it takes, by OpenTelemetry.
//
// All that spans hold is written here: names of policies and limits, outcomes, numbers, and the
// addresses of nodes. No identifier and no key ever is. Where nothing is traced, nothing is
// allocated.
//
// The package knows OpenTelemetry's API. It does not know the SDK, which is package sampling's, nor an exporter, which is
// package otlp's.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the spans' instrumentation scope.
const scope = "github.com/ratelimitd/ratelimitd"

// Tracer begins spans of requests. A nil one traces nothing.
type Tracer struct {
	tracer trace.Tracer
	wanted Sampler
}

// Sampler reports whether somebody is to see the trace with that id. In parent is the caller's span, if there is
// one: whether it is of another process, and whether it is sampled.
type Sampler func(parent context.Context, id trace.TraceID) bool

// New returns a Tracer whose spans provider takes. wanted is asked once for each request, and decides as provider's
// own sampler does: what it refuses, provider never hears of. provider is to take its ids from IDs.
//
// Package sampling has one for OpenTelemetry's SDK.
func New(provider trace.TracerProvider, wanted Sampler) *Tracer {
	return &Tracer{provider.Tracer(scope), wanted}
}

// Span is a part of a trace that is under way. The zero value is of a call that is not traced, and does nothing.
type Span struct {
	span trace.Span    // nil: it is not recorded
	id   trace.TraceID // of the trace, seen or not
}

// Sampled reports whether anybody will see the span; if not, its other methods do nothing useful.
func (s Span) Sampled() bool { return s.span != nil }

// TraceID returns the id of the trace, in hex, for logs and metrics; empty: there is none, or its caller may have made it of
// a phone number.
func (s Span) TraceID() string {
	if !s.id.IsValid() || !isOpaque(s.id) {
		return ""
	}
	return s.id.String()
}

// SampledID is TraceID where somebody will see the trace, and else empty.
func (s Span) SampledID() string {
	if !s.Sampled() {
		return ""
	}
	return s.TraceID()
}

// fail marks the span as failed with err, unless that is nil.
func (s Span) fail(err error) {
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
}

// Options of spans, made once to save allocations: most spans are not sampled.
var (
	ofServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	ofClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	ofOwn    = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}
)

// enter begins the span of something that came in from outside. Where nobody will see it, it returns ctx.
func (t *Tracer) enter(ctx context.Context, name string, from Parent) (context.Context, Span) {
	id, sampled, ok := from.read()
	asked := ctx
	switch {
	case !ok:
		id = newID()
	case sampled:
		asked = sampledCaller
	default:
		asked = unsampledCaller
	}
	if !t.wanted(asked, id) {
		return ctx, Span{id: id}
	}
	if ok {
		ctx = from.extract(ctx)
	} else {
		ctx = &root{ctx, id}
	}
	return start(ctx, t.tracer, name, ofServer)
}

// begin begins a part of what ctx is traced by. Where that is nothing, or nobody will see it, it
// returns ctx and the zero Span.
func begin(ctx context.Context, name string, with []trace.SpanStartOption) (context.Context, Span) {
	within := trace.SpanFromContext(ctx)
	if !within.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	return start(ctx, within.TracerProvider().Tracer(scope), name, with)
}

func start(ctx context.Context, by trace.Tracer, name string, with []trace.SpanStartOption) (context.Context, Span) {
	within, span := by.Start(ctx, name, with...)
	id := span.SpanContext().TraceID()
	if !span.IsRecording() { // what it begins is none
		return ctx, Span{id: id}
	}
	return within, Span{span, id}
}

// Inject sets the headers by which the server continues the trace of ctx, if it is sampled.
func Inject(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsSampled() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
