package proxy

import (
	"net/http"
	"time"
)

// Bounds of one connection. There are none of whole requests and answers, which may be
// streams; writer bounds how long nothing of them may pass.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10 // cookies of browsers, and some more
	maxStreams        = 100      // requests at the same time on one connection of HTTP/2, as RFC 9113 has them at least (section 6.5.2)
)

// NewHTTPServer returns a server for p with every bound set but that of connections. It speaks
// HTTP/1.1 and HTTP/2, and HTTP/2 without TLS to clients that know beforehand.
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
