package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// BenchmarkProxy passes GETs of a kilobyte through a bare httputil.ReverseProxy and through this one. The client and
// the application are in the same process: their cost is in all figures, and cancels out in the differences.
func BenchmarkProxy(b *testing.B) {
	answer := strings.Repeat("x", 1000)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer app.Close()
	upstream, err := url.Parse(app.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.SetXForwarded()
	}, Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	b.Run("bare", func(b *testing.B) { passThrough(b, &http.Server{Handler: bare}) })
	for name, limits := range map[string]string{
		"no limits": "[]", "first": "[{policy: all}]", "served": "[{policy: all, count: served}]",
		"two policies": "[{policy: all}, {policy: more, identify: api-key}]",
		"bytes":        "[{policy: all, charge: response-bytes}]",
	} {
		b.Run(name, func(b *testing.B) {
			engine := limiter.New(embedded.New(nil), nil)
			most := []policy.Limit{{Algorithm: "sliding-tail", Limit: policy.MaxLimit, Window: time.Hour}}
			if err := engine.SetPolicies([]policy.Policy{{Name: "all", Limits: most}, {Name: "more", Limits: most}}); err != nil {
				b.Fatal(err)
			}
			routes, err := proxy.Parse("bench", fmt.Appendf(nil, "routes: [{path: /, limits: %s}]", limits), engine.Policies())
			if err != nil {
				b.Fatal(err)
			}
			p, err := proxy.New(engine, &proxy.Options{Upstream: upstream, Routes: routes})
			if err != nil {
				b.Fatal(err)
			}
			passThrough(b, proxy.NewHTTPServer(p))
		})
	}
}

// passThrough reports the processor time of a request.
func passThrough(b *testing.B, server *http.Server) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	before := processorTime(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := client.Get("http://" + listener.Addr().String() + "/a")
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				b.Errorf("status %d", res.StatusCode)
			}
		}
	})
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// processorTime returns the processor time of the process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
