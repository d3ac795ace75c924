package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
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

// NewHTTPServer returns a server for s with every timeout and bound set, but for
// that of connections, which connections.Limit sets. Its address, TLS and error log are left to the caller.
func NewHTTPServer(s *Server) *http.Server {
	return &http.Server{
		Handler:           s,
		ConnContext:       withRoute,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

// ownRoute is the key of a connection's *chi.Context, beside chi's own: that may be one of
// another router, which Server is part of.
type ownRoute struct{}

// withRoute gives a connection what chi notes of a request on its way: for each request of
// its own, chi would make one, and copy the request.
func withRoute(ctx context.Context, _ net.Conn) context.Context {
	route := chi.NewRouteContext()
	return context.WithValue(context.WithValue(ctx, ownRoute{}, route), chi.RouteCtxKey, route)
}

// routed returns r ready for chi to route. By HTTP/1, requests of a connection come one
// after the other; by HTTP/2 they don't, and chi has to make one for each.
func (s *Server) routed(r *http.Request) *http.Request {
	route, own := r.Context().Value(ownRoute{}).(*chi.Context)
	switch {
	case !own:
	case r.ProtoMajor > 1:
		return r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, nil))
	default:
		route.Reset()
		route.Routes = s.mux
	}
	return r
}
