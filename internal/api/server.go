package api

import (
	"net/http"
	"time"
)

// Bounds of one connection. Decisions take milliseconds and at most the store's
// timeout, so each bound is there for clients that are slow or hostile.
const (
	readHeaderTimeout = 5 * time.Second  // headers fit a few packets; longer is a client that holds connections open
	readTimeout       = 10 * time.Second // a megabyte of batch at 1 Mbit/s
	writeTimeout      = 20 * time.Second // from the headers' end on: the body, a decision with a generous store timeout, the answer
	idleTimeout       = 2 * time.Minute  // longer than the usual 60 s of load balancers, so that they close first
	maxHeaderBytes    = 16 << 10         // no request of this API needs more than a kilobyte; proxies add some
)

// NewHTTPServer returns a server for handler with every timeout and bound set, but for
// that of connections, which LimitConnections sets. Its address, TLS and error log are left to the caller.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
