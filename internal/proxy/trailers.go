package proxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
)

// keepTrailers passes on the trailers that a request announces, except those that identify or match requests: some
// applications treat a trailer as a header.
func (p *Proxy) keepTrailers(r *httputil.ProxyRequest) {
	for _, names := range []headerNames{p.counted, p.dropped} {
		names.dropDisguised(r.Out.Trailer)
		names.drop(r.Out.Trailer)
	}
	if len(r.Out.Trailer) > 0 {
		r.Out.Body = &trailed{r.Out.Body, r.In.Trailer, r.Out.Trailer}
	}
}

// trailed is a body with trailers after it.
type trailed struct {
	io.ReadCloser
	from, to http.Header // from is filled before the body ends
}

// Read copies the trailers when the body ends.
func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		for name := range t.to {
			t.to[name] = t.from[name]
		}
	}
	return n, err
}
