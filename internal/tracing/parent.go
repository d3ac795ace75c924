package tracing

import (
	"context"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Parent is a span of another process, in the two headers of W3C Trace Context. The zero value is none.
type Parent struct{ Traceparent, Tracestate string }

// The headers of a Parent: their names in package propagation, and in canonical form.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"

	httpParent = "Traceparent"
	httpState  = "Tracestate"
)

// ParentFrom returns the Parent in the values of the headers traceparent and tracestate. It returns none unless there is
// one traceparent.
func ParentFrom(parents, states []string) Parent {
	if len(parents) != 1 {
		return Parent{}
	}
	return Parent{parents[0], strings.Join(states, ",")}
}

// Offsets of the parts of a traceparent: 00-<trace id>-<span id>-<flags>, in lower case.
const (
	parentLength = 55
	traceFrom    = 3
	spanFrom     = 36
	flagsFrom    = 53

	maxVersion = 254 // 255 is invalid
	maxFlags   = 3   // of version 0: sampled, random
)

// read returns the trace of p, and whether it is sampled. It accepts the same headers as extract, and allocates
// nothing.
func (p Parent) read() (id trace.TraceID, sampled, ok bool) {
	h := p.Traceparent
	if len(h) < parentLength || h[traceFrom-1] != '-' || h[spanFrom-1] != '-' || h[flagsFrom-1] != '-' {
		return trace.TraceID{}, false, false
	}
	id, wrongID := trace.TraceIDFromHex(h[traceFrom : spanFrom-1])
	_, wrongSpan := trace.SpanIDFromHex(h[spanFrom : flagsFrom-1])
	version, isVersion := readByte(h[:traceFrom-1])
	flags, areFlags := readByte(h[flagsFrom:parentLength])
	switch {
	case wrongID != nil, wrongSpan != nil, !isVersion, !areFlags,
		version > maxVersion, version == 0 && flags > maxFlags,
		len(h) > parentLength && h[parentLength] != '-',
		version == 0 && len(h) > parentLength+1: // a dash at the end is accepted
		return trace.TraceID{}, false, false
	}
	return id, trace.TraceFlags(flags).IsSampled(), true
}

// readByte reads two digits in lower case.
func readByte(text string) (b byte, ok bool) {
	n, err := strconv.ParseUint(text, 16, 8)
	return byte(n), err == nil && text == strings.ToLower(text)
}

// Contexts of callers with a sampled trace, and with one that is not. A Sampler uses nothing else of them.
var (
	sampledCaller   = callerOf(trace.FlagsSampled)
	unsampledCaller = callerOf(0)
)

func callerOf(flags trace.TraceFlags) context.Context {
	return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags,
	}))
}

// extract returns ctx with p as its parent.
func (p Parent) extract(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{headerParent: p.Traceparent, headerState: p.Tracestate})
}

// parentOf returns the span of ctx.
func parentOf(ctx context.Context) Parent {
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	return Parent{headers[headerParent], headers[headerState]}
}
