// Package tracing traces requests by OpenTelemetry: from the listener, through the instance that owns the key, to the
// requests to Cassandra.
//
// It sets all attributes of spans: names of policies and limits, outcomes, numbers, and addresses of nodes, but never an
// identifier or a key. A request that is not traced allocates nothing here.
//
// The package knows OpenTelemetry's API. Package sampling knows the SDK, and package otlp the exporters.
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

// Sampler reports whether the trace with this id is sampled. parent has the span of the caller, if there is one, with its
// flags: whether it is remote, and whether it is sampled.
type Sampler func(parent context.Context, id trace.TraceID) bool

// New returns a Tracer that begins spans by provider, which must use IDs. wanted is called once for each request, and must
// decide as provider's own sampler does: provider gets no requests that wanted refuses.
//
// Package sampling has such a provider of OpenTelemetry's SDK.
func New(provider trace.TracerProvider, wanted Sampler) *Tracer {
	return &Tracer{provider.Tracer(scope), wanted}
}

// Span is a part of a trace in progress. The zero value is the span of a call that is not traced, and does nothing.
type Span struct {
	span trace.Span    // nil: it is not sampled
	id   trace.TraceID // of the trace, sampled or not
}

// Sampled reports whether the span is recorded. Otherwise the methods that end it do nothing.
func (s Span) Sampled() bool { return s.span != nil }

// TraceID returns the id of the trace, in hex, for logs and metrics. It is empty without a trace, and for an id that a
// caller may have made from a phone number.
func (s Span) TraceID() string {
	if !s.id.IsValid() || !isOpaque(s.id) {
		return ""
	}
	return s.id.String()
}

// SampledID is TraceID of a sampled trace, and empty for others.
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

// Options of spans. They are shared to save allocations.
var (
	ofServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	ofClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	ofOwn    = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}
)

// enter begins the span of a request from outside, whose parent is from. It returns ctx if the span is not sampled or t is
// nil.
func (t *Tracer) enter(ctx context.Context, name string, from Parent) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
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

// begin begins a span below that of ctx. It returns ctx and the zero Span if that is not sampled.
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
	if !span.IsRecording() {
		return ctx, Span{id: id}
	}
	return within, Span{span, id}
}

// Inject sets the headers by which another server continues the trace of ctx, if that is sampled.
func Inject(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsSampled() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
