// Package sampling makes Tracers that use OpenTelemetry's SDK. They decide once for each request whether it is traced.
//
// It knows neither exporters nor the attributes of spans.
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

// New returns a Tracer of the requests that sampler samples, and the provider of its spans, which has these options.
func New(sampler trace.Sampler, with ...trace.TracerProviderOption) (*tracing.Tracer, *trace.TracerProvider) {
	provider := trace.NewTracerProvider(append(with, trace.WithSampler(sampler), trace.WithIDGenerator(tracing.IDs{}))...)
	return tracing.New(provider, func(parent context.Context, id api.TraceID) bool {
		result := sampler.ShouldSample(trace.SamplingParameters{ParentContext: parent, TraceID: id, Kind: api.SpanKindServer})
		return result.Decision == trace.RecordAndSample
	}), provider
}

// The variables that select which traces are sampled.
const (
	variable         = "OTEL_TRACES_SAMPLER"
	variableArgument = "OTEL_TRACES_SAMPLER_ARG"
)

// byDefault samples every trace that the caller does not exclude.
const byDefault = "parentbased_always_on"

// FromEnvironment returns the sampler that the environment names, and its name, as the SDK reads them, which does not
// export its own. It ignores variables with mistakes, because the SDK logs them.
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

// ratio returns the part of traces to be sampled, from the environment; 1 by default.
func ratio() float64 {
	part, err := strconv.ParseFloat(strings.TrimSpace(os.Getenv(variableArgument)), 64)
	if err != nil || part < 0 || part > 1 {
		return 1
	}
	return part
}
