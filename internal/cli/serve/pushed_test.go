package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestMetricsArePushed has a server send its metrics to a collector again and again: all that a scrape finds, and no
// identifier.
func TestMetricsArePushed(t *testing.T) {
	var mu sync.Mutex
	var pushed []*collector.ExportMetricsServiceRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
		body, err := io.ReadAll(sent.Body)
		export := new(collector.ExportMetricsServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, export)
		}
		if err != nil || sent.URL.Path != "/v1/metrics" {
			t.Errorf("%s: %v", sent.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		pushed = append(pushed, export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer server.Close()
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "100") // milliseconds
	s := start(t, nil)
	s.Take(t, "login")
	decided := func() (calls float64, last *metrics.ResourceMetrics) {
		mu.Lock()
		defer mu.Unlock()
		if len(pushed) == 0 {
			return 0, nil
		}
		last = pushed[len(pushed)-1].GetResourceMetrics()[0]
		for _, point := range find(last, "ratelimitd_calls_total").GetSum().GetDataPoints() {
			calls += point.GetAsDouble()
		}
		return calls, last
	}
	waitUntil(t, func() bool { calls, _ := decided(); return calls == 1 })
	scraped := regexp.MustCompile(`# TYPE (\S+)`).FindAllStringSubmatch(s.Body(t, "/metrics"), -1)
	waitUntil(t, func() bool { // what a scrape finds is in a later one
		_, last := decided()
		return !slices.ContainsFunc(scraped, func(name []string) bool { return find(last, name[1]) == nil })
	})
	_, last := decided()
	if text := last.String(); strings.Contains(text, "4915112345678") {
		t.Errorf("an identifier was pushed: %s", text)
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// find returns the metric of that name; nil: there is none.
func find(in *metrics.ResourceMetrics, name string) *metrics.Metric {
	for _, scope := range in.GetScopeMetrics() {
		for _, m := range scope.GetMetrics() {
			if m.GetName() == name {
				return m
			}
		}
	}
	return nil
}
