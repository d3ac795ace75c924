// Package tracing follows a request from where it comes in, over the instance that owns its key, to
// the trips to Cassandra that it takes, by OpenTelemetry.
//
// All that spans hold is written here: names of policies and limits, outcomes, numbers, and the
// addresses of nodes. No identifier and no key ever is. Where nothing is traced, nothing is
// allocated.
//
// The package knows OpenTelemetry's API and no exporter: that is package otlp's.
package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is who made the spans.
const scope = "github.com/ratelimitd/ratelimitd"

// Tracer begins spans of requests. A nil one traces nothing.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer whose spans provider takes.
func New(provider trace.TracerProvider) *Tracer { return &Tracer{provider.Tracer(scope)} }

// Span is a part of a trace that is under way. The zero value is of what is not traced, and does
// nothing.
type Span struct{ span trace.Span }

// Sampled reports whether anybody will see the span: whatever else it is asked to do is for
// nothing if not.
func (s Span) Sampled() bool { return s.span != nil && s.span.IsRecording() }

// TraceID returns the id of the trace, in hex; empty: there is none.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// SampledID is TraceID where somebody will see the trace, and else empty.
func (s Span) SampledID() string {
	if !s.Sampled() {
		return ""
	}
	return s.TraceID()
}

// fail marks the span of what failed with err; nil: it did not.
func (s Span) fail(err error) {
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
}

// Parent is a span of another process, as W3C Trace Context has it travel: in two headers. The zero
// value is none.
type Parent struct{ Traceparent, Tracestate string }

// The headers of a Parent.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
)

// ParentFrom returns what the headers called traceparent and tracestate have, of which values returns
// those of one.
func ParentFrom(values func(name string) []string) Parent {
	sent := values(headerParent)
	if len(sent) != 1 {
		return Parent{}
	}
	return Parent{sent[0], strings.Join(values(headerState), ",")}
}

// extract returns ctx as that of what p began.
func (p Parent) extract(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, &p)
}

// parentOf returns the span of ctx.
func parentOf(ctx context.Context) (p Parent) {
	propagation.TraceContext{}.Inject(ctx, &p)
	return p
}

// Get returns one of the headers.
func (p *Parent) Get(name string) string {
	switch name {
	case headerParent:
		return p.Traceparent
	case headerState:
		return p.Tracestate
	}
	return ""
}

// Set sets one of the headers.
func (p *Parent) Set(name, value string) {
	switch name {
	case headerParent:
		p.Traceparent = value
	case headerState:
		p.Tracestate = value
	}
}

// Keys returns the names of the headers.
func (*Parent) Keys() []string { return []string{headerParent, headerState} }

// What spans are begun with, made once: most are of what is not sampled.
var (
	ofServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	ofClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	ofOwn    = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}
)

// enter begins the span of something that came in from outside.
func (t *Tracer) enter(ctx context.Context, name string, from Parent) (context.Context, Span) {
	within := ctx
	if from != (Parent{}) {
		within = from.extract(ctx)
	}
	within, span := t.tracer.Start(within, name, ofServer...)
	if !span.IsRecording() {
		return ctx, Span{span} // what it begins is none
	}
	return within, Span{span}
}

// begin begins a part of what ctx is traced by. Where that is nothing, or nobody will see it, it
// returns ctx and the zero Span.
func begin(ctx context.Context, name string, with []trace.SpanStartOption) (context.Context, Span) {
	within := trace.SpanFromContext(ctx)
	if !within.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	ctx, span := within.TracerProvider().Tracer(scope).Start(ctx, name, with...)
	return ctx, Span{span}
}

// Inject sets the headers by which whoever is asked goes on with the trace of ctx, if somebody will see that.
func Inject(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsSampled() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
