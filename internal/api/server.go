package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// Bounds of a connection. Decisions take milliseconds, and at most the store's timeout; the bounds are for slow or
// hostile clients.
const (
	readHeaderTimeout = 5 * time.Second  // headers fit a few packets; longer is a client that holds connections open
	readTimeout       = 10 * time.Second // a megabyte of batch at 1 Mbit/s
	writeTimeout      = 20 * time.Second // from the headers' end on: the body, a decision with a generous store timeout, the answer
	idleTimeout       = 2 * time.Minute  // longer than the usual 60 s of load balancers, so that they close first
	maxHeaderBytes    = 16 << 10         // no request of this API needs more than a kilobyte; proxies add some
)

// NewHTTPServer returns a server for s with all timeouts and bounds, except that of connections, which
// connections.Limit sets. The caller sets its address, TLS and error log.
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

// ownRoute is the key of a connection's *chi.Context. chi's own key may have that of another router of which Server is
// a part.
type ownRoute struct{}

// withRoute gives a connection a *chi.Context. Otherwise chi would make one for each request, and copy the request.
func withRoute(ctx context.Context, _ net.Conn) context.Context {
	route := chi.NewRouteContext()
	return context.WithValue(context.WithValue(ctx, ownRoute{}, route), chi.RouteCtxKey, route)
}

// routed prepares r for routing by chi. HTTP/1 has one request of a connection at a time, which can use the
// connection's context; for HTTP/2, chi makes one for each.
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
