package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkTake measures a take from the router to the answer's last byte, over
// the embedded store and without a connection.
func BenchmarkTake(b *testing.B) {
	newFront(&testing.T{}, nil, tail).benchmark(b, "/v1/take", oneTail)
}

// benchmark posts body to path again and again.
func (f *front) benchmark(b *testing.B, path, body string) {
	f.server.opts.Logger = slog.New(slog.DiscardHandler)
	reader := strings.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, path, reader)
	r.Header.Set("Content-Type", "application/json")
	w := discard{}
	b.ReportAllocs()
	for b.Loop() {
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
