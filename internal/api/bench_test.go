package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkTake measures a take from the router to the answer's last byte, over
// the embedded store and without a connection.
func BenchmarkTake(b *testing.B) {
	f := newFront(&testing.T{}, nil, tail)
	f.server.opts.Logger = New(nil, nil).opts.Logger
	body := strings.NewReader(oneTail)
	r := httptest.NewRequest(http.MethodPost, "/v1/take", body)
	r.Header.Set("Content-Type", "application/json")
	w := discard{}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(oneTail)
		clear(w)
		f.server.ServeHTTP(w, r)
	}
}

// discard is a response that nobody reads.
type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
