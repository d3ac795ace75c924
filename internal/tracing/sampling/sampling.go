// Package sampling makes Tracers of OpenTelemetry's SDK, which decide once for each request whether it is traced.
//
// It knows neither exporters nor the content of spans.
package sampling

import (
	"context"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// New returns a Tracer of the requests that sampler, one of the SDK's, wants, and the provider that its spans go
// through, made with the options.
func New(sampler trace.Sampler, with ...trace.TracerProviderOption) (*tracing.Tracer, *trace.TracerProvider) {
	provider := trace.NewTracerProvider(append(with, trace.WithSampler(sampler), trace.WithIDGenerator(tracing.IDs{}))...)
	return tracing.New(provider, func(parent context.Context, id api.TraceID) bool {
		result := sampler.ShouldSample(trace.SamplingParameters{ParentContext: parent, TraceID: id, Kind: api.SpanKindServer})
		return result.Decision == trace.RecordAndSample
	}), provider
}

// The variables that say which traces are sampled.
const (
	variable         = "OTEL_TRACES_SAMPLER"
	variableArgument = "OTEL_TRACES_SAMPLER_ARG"
)

// byDefault samples every trace that its caller does not exclude.
const byDefault = "parentbased_always_on"

// FromEnvironment returns the sampler that the environment names, as the SDK reads it, and its name: the SDK tells nobody which
// one it has. Of variables that are wrong it does tell, and so they are passed over here.
func FromEnvironment() (sampler trace.Sampler, name string) {
	name = strings.ToLower(strings.TrimSpace(os.Getenv(variable)))
	switch name {
	case "parentbased_always_off":
		return trace.ParentBased(trace.NeverSample()), name
	case "parentbased_traceidratio":
		return trace.ParentBased(trace.TraceIDRatioBased(ratio())), name
	case "always_on":
		return trace.AlwaysSample(), name
	case "always_off":
		return trace.NeverSample(), name
	case "traceidratio":
		return trace.TraceIDRatioBased(ratio()), name
	}
	return trace.ParentBased(trace.AlwaysSample()), byDefault
}

// ratio returns the part of traces that are to be sampled: all, unless the environment says another one.
func ratio() float64 {
	part, err := strconv.ParseFloat(strings.TrimSpace(os.Getenv(variableArgument)), 64)
	if err != nil || part < 0 || part > 1 {
		return 1
	}
	return part
}
