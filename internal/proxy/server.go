package proxy

import (
	"net/http"
	"time"
)

// Bounds of a connection. Whole requests and answers have no bound, since they may be streams; writer bounds the time
// without progress.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10 // cookies of browsers, and some more
	maxStreams        = 100      // concurrent requests on an HTTP/2 connection, the least that RFC 9113 recommends (section 6.5.2)
)

// NewHTTPServer returns a server for p with all bounds except that of connections. It speaks HTTP/1.1 and HTTP/2, and
// HTTP/2 without TLS to clients that begin with it.
func NewHTTPServer(p *Proxy) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           p,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
}
