package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// BenchmarkTake measures a take from the router to the last byte of the answer, over the embedded store and without a
// connection.
func BenchmarkTake(b *testing.B) {
	for name, limit := range map[string]int64{"allowed": policy.MaxLimit, "denied": 0} {
		b.Run(name, func(b *testing.B) {
			newFront(&testing.T{}, nil, policy.Policy{Name: "api", Limits: []policy.Limit{
				{Algorithm: "sliding-tail", Limit: limit, Window: time.Minute},
			}}).benchmark(b, "/v1/take", oneTail)
		})
	}
}

// benchmark posts body to path in a benchmark.
func (f *front) benchmark(b *testing.B, path, body string) {
	ask := f.repeat(path, body)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

// repeat returns a function that posts body to path, logs nothing and reads no answer.
func (f *front) repeat(path, body string, headers ...string) (ask func()) {
	f.server.opts.Logger = slog.New(slog.DiscardHandler)
	reader := strings.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, path, reader)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := discard{}
	return func() {
		reader.Reset(body)
		clear(w)
		f.server.ServeHTTP(w, r)
	}
}

// discard is a response that nobody reads.
type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
