package sampling_test

import (
	"context"
	"encoding/binary"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// fixed generates one id of traces.
type fixed struct{ api.TraceID }

func (f fixed) NewIDs(context.Context) (api.TraceID, api.SpanID)     { return f.TraceID, api.SpanID{1} }
func (fixed) NewSpanID(context.Context, api.TraceID) (id api.SpanID) { return api.SpanID{1} }
func parentOf(id api.TraceID, flags api.TraceFlags) context.Context {
	return api.ContextWithRemoteSpanContext(context.Background(),
		api.NewSpanContext(api.SpanContextConfig{TraceID: id, SpanID: api.SpanID{1}, TraceFlags: flags}))
}

// TestEnvironmentIsReadAsByTheSDK holds that the sampler is that of OpenTelemetry's SDK for the same variables.
func TestEnvironmentIsReadAsByTheSDK(t *testing.T) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // about variables with mistakes
	for _, name := range []string{
		"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
		" TraceIDRatio ", "nonsense",
	} {
		for _, argument := range []string{"", "0", "0.5", " 1e-1 ", "1", "1.5", "-1", "half", "NaN"} {
			t.Setenv("OTEL_TRACES_SAMPLER", name)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", argument)
			sampler, _ := sampling.FromEnvironment()
			for part := range uint64(16) {
				id := api.TraceID{1}
				binary.BigEndian.PutUint64(id[8:], part<<60)
				provider := trace.NewTracerProvider(trace.WithIDGenerator(fixed{id}))
				for _, parent := range []context.Context{context.Background(), parentOf(id, 0), parentOf(id, api.FlagsSampled)} {
					_, span := provider.Tracer("").Start(parent, "")
					got := sampler.ShouldSample(trace.SamplingParameters{ParentContext: parent, TraceID: id}).Decision
					if (got == trace.RecordAndSample) != span.SpanContext().IsSampled() {
						t.Errorf("%q of %q: trace %s is decided as %d", name, argument, id, got)
					}
				}
			}
		}
	}
}
