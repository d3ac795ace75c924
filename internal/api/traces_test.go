package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// traced returns a front that records its sampled spans.
func traced(t *testing.T, sampler trace.Sampler) (*front, *tracetest.SpanRecorder, *[]string) {
	t.Helper()
	recorder, shown := tracetest.NewSpanRecorder(), new([]string)
	tracer, _ := sampling.New(sampler, trace.WithSpanProcessor(recorder))
	f := newFront(t, &Options{
		Tracer:      tracer,
		Observe:     func(_ string, _ int, _ time.Duration, trace string) { *shown = append(*shown, trace) },
		ForwardAuth: gateways,
	}, smsSend, tail, closed)
	return f, recorder, shown
}

const (
	callersTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersParent = "00-" + callersTrace + "-00f067aa0ba902b7-"
)

func spanNames(recorder *tracetest.SpanRecorder) (names []string) {
	for _, s := range recorder.Ended() {
		names = append(names, s.Name())
	}
	return names
}

// TestSpansOfRequests holds the spans of requests that are part of a trace, with the span of the request last.
func TestSpansOfRequests(t *testing.T) {
	const one = `{"policy":"api","identifier":"+4915112345678"}`
	for _, c := range []struct {
		name, method, path, body string
		down                     bool
		status                   int
		spans, outcomes          string
	}{
		{"take", "POST", "/v1/take", one, false, 200, "decide, POST /v1/take", "allowed"},
		{"check", "POST", "/v1/check", one, false, 200, "decide, POST /v1/check", "allowed"},
		{"denied", "POST", "/v1/take", `{"policy":"closed","identifier":"a"}`, false, 429, "decide, POST /v1/take", "denied"},
		{"unknown policy", "POST", "/v1/take", `{"policy":"+4915112345678","identifier":"a"}`, false, 404, "decide, POST /v1/take", "invalid"},
		{"no JSON", "POST", "/v1/take", `+4915112345678`, false, 400, "POST /v1/take", ""},
		{"no route", "GET", "/v1/+4915112345678", "", false, 404, "GET unknown", ""},
		{"store down", "POST", "/v1/take", one, true, 503, "decide, POST /v1/take", "failed"},
		{"batch", "POST", "/v1/batch", operationsOf(oneOp, oneOp), false, 200, "decide, decide, POST /v1/batch", "allowed, allowed"},
		{"gateway", "GET", "/v1/forward-auth?policy=api", "", false, 200, "decide, GET /v1/forward-auth", "allowed"},
		{"liveness", "GET", "/healthz", "", false, 200, "", ""},
	} {
		f, recorder, shown := traced(t, trace.ParentBased(trace.NeverSample()))
		if c.down {
			f.store.err = errStoreDown
		}
		res := f.do(c.method, c.path, c.body, "Traceparent", callersParent+"01", "X-Forwarded-For", "203.0.113.7")
		if res.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", c.name, res.StatusCode, c.status)
		}
		var outcomes []string
		for _, s := range recorder.Ended() {
			said := attribute.NewSet(s.Attributes()...)
			if outcome, ok := said.Value("ratelimitd.outcome"); ok {
				outcomes = append(outcomes, outcome.AsString())
			}
			if failed := s.Status().Code == otelcodes.Error; failed != (c.status == http.StatusServiceUnavailable) {
				t.Errorf("%s: %s failed: %t", c.name, s.Name(), failed)
			}
			if s.SpanContext().TraceID().String() != callersTrace || strings.Contains(said.Encoded(attribute.DefaultEncoder()), "15112345") {
				t.Errorf("%s: %s of trace %s says %v", c.name, s.Name(), s.SpanContext().TraceID(), said)
			}
		}
		if got := strings.Join(spanNames(recorder), ", "); got != c.spans {
			t.Errorf("%s: the spans %s, want %s", c.name, got, c.spans)
		}
		if got := strings.Join(outcomes, ", "); got != c.outcomes {
			t.Errorf("%s: the outcomes %s, want %s", c.name, got, c.outcomes)
		}
		want := ""
		if c.spans != "" {
			want = callersTrace
		}
		if (*shown)[0] != want || strings.Contains(f.log.String(), "trace_id="+callersTrace) != (want != "") {
			t.Errorf("%s: the metrics show trace %q, want %q; the log:\n%s", c.name, (*shown)[0], want, f.log)
		}
	}
}

// TestWhatIsNotSampledHasNoSpans holds that a request that its caller or the sampler excludes has no spans. The log has
// its id.
func TestWhatIsNotSampledHasNoSpans(t *testing.T) {
	for flags, sampler := range map[string]trace.Sampler{
		"00": trace.ParentBased(trace.AlwaysSample()),
		"01": trace.NeverSample(),
	} {
		f, recorder, shown := traced(t, sampler)
		f.do(http.MethodPost, "/v1/take", `{"policy":"api","identifier":"a"}`, "Traceparent", callersParent+flags)
		if n := len(recorder.Started()); n > 0 || (*shown)[0] != "" || !strings.Contains(f.log.String(), "trace_id="+callersTrace) {
			t.Errorf("flags %s: %d spans, the metrics show %q, the log:\n%s", flags, n, (*shown)[0], f.log)
		}
	}
}

// unseen are the ways in which a take is not sampled. In the first, nothing is traced.
var unseen = []struct {
	name    string
	sampler trace.Sampler // nil: nothing is traced
	headers []string
}{
	{"off", nil, nil},
	{"not sampled", trace.TraceIDRatioBased(0), nil},
	{"not sampled by the caller", trace.ParentBased(trace.AlwaysSample()), []string{"Traceparent", callersParent + "00"}},
}

// forTraces returns a front of a policy that admits everything.
func forTraces(t *testing.T, sampler trace.Sampler) *front {
	opts := new(Options)
	if sampler != nil {
		opts.Tracer, _ = sampling.New(sampler)
	}
	return newFront(t, opts, policy.Policy{Name: "api", Limits: []policy.Limit{
		{Algorithm: "sliding-tail", Limit: policy.MaxLimit, Window: time.Minute},
	}})
}

// BenchmarkTraces measures a take without tracing, not sampled, and sampled.
func BenchmarkTraces(b *testing.B) {
	for _, c := range append(slices.Clone(unseen), struct {
		name    string
		sampler trace.Sampler
		headers []string
	}{"sampled", trace.AlwaysSample(), nil}) {
		b.Run(c.name, func(b *testing.B) {
			ask := forTraces(&testing.T{}, c.sampler).repeat("/v1/take", oneTail, c.headers...)
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
