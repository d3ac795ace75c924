package envoy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// TestEnvoysTraceGoesOn holds that a request continues the trace of its metadata, with a decision for each limited
// descriptor, and without any value.
func TestEnvoysTraceGoesOn(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for flags, want := range map[string]string{"00": "", "01": "decide allowed, decide denied, ShouldRateLimit OVER_LIMIT"} {
		recorder := tracetest.NewSpanRecorder()
		tracer, _ := sampling.New(trace.ParentBased(trace.NeverSample()), trace.WithSpanProcessor(recorder))
		shown := make(chan string, 1)
		f := newFront(t, edge, settings{options: envoy.Options{
			Tracer:  tracer,
			Observe: func(_, _ string, _ time.Duration, trace string) { shown <- trace },
		}})
		ctx := metadata.AppendToOutgoingContext(context.Background(), "traceparent", "00-"+id+"-00f067aa0ba902b7-"+flags)
		f.answered(f.client.ShouldRateLimit(ctx, request(
			descriptor("remote_address=192.0.2.1"), descriptor("remote_address=10.0.0.9"), descriptor("unknown=192.0.2.1"))))
		if got := <-shown; got != id && want != "" || got != "" && want == "" {
			t.Errorf("flags %s: the metrics show trace %q", flags, got)
		}
		f.stop()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
		f.ended <- nil
		var got []string
		for _, s := range recorder.Ended() {
			said := attribute.NewSet(s.Attributes()...)
			became, ok := said.Value("ratelimitd.outcome")
			if !ok {
				became, _ = said.Value("ratelimitd.code")
			}
			got = append(got, s.Name()+" "+became.AsString())
			if text := fmt.Sprint(s.Attributes()); strings.Contains(text, "192.0.2.1") || strings.Contains(text, "10.0.0.9") {
				t.Errorf("%s says %s", s.Name(), text)
			}
			if s.SpanContext().TraceID().String() != id {
				t.Errorf("%s is of another trace", s.Name())
			}
		}
		slices.SortFunc(got, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
		if all := strings.Join(got, ", "); all != want {
			t.Errorf("flags %s: the spans are %s, want %s", flags, all, want)
		}
	}
}
