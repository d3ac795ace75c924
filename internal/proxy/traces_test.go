package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ratelimitd/ratelimitd/internal/proxy"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// TestApplicationGoesOnWithTheTrace holds that the application gets the proxy's span as the parent of a sampled
// request, and unchanged headers otherwise.
func TestApplicationGoesOnWithTheTrace(t *testing.T) {
	const id, routes = "4bf92f3577b34da6a3ce929d0e0e4736", "- {name: web, path: /, limits: [{policy: two, identify: 'header:X-Tenant'}]}"
	for _, flags := range []string{"00", "01"} {
		recorder, passed := tracetest.NewSpanRecorder(), make(chan http.Header, 1)
		f := newFront(t, routes, func(_ http.ResponseWriter, r *http.Request) { passed <- r.Header }, func(o *proxy.Options) {
			o.Tracer, _ = sampling.New(trace.ParentBased(trace.AlwaysSample()), trace.WithSpanProcessor(recorder))
		})
		sent := "00-" + id + "-00f067aa0ba902b7-" + flags
		f.send(f.request("GET", "/secret", "", "X-Tenant", "acme", "Traceparent", sent, "Tracestate", "a=1"))
		got := <-passed
		want := sent
		f.server.Close()
		var spans []string
		for _, s := range recorder.Ended() {
			spans = append(spans, s.Name())
			want = "00-" + id + "-" + s.SpanContext().SpanID().String() + "-01" // the request's is the last
			if said := fmt.Sprint(s.Attributes()); strings.Contains(said, "acme") || strings.Contains(said, "secret") {
				t.Errorf("%s says %s", s.Name(), said)
			}
		}
		if got.Get("Traceparent") != want || got.Get("Tracestate") != "a=1" {
			t.Errorf("the application is sent %s, %s, want %s", got.Get("Traceparent"), got.Get("Tracestate"), want)
		}
		if names := strings.Join(spans, ", "); names != map[string]string{"00": "", "01": "decide, GET proxy web"}[flags] {
			t.Errorf("flags %s: the spans %s", flags, names)
		}
	}
}
