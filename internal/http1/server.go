// Package http1 answers plain requests of HTTP/1.1 with about half the work that net/http
// takes for them, and leaves all others to net/http.
//
// A request is plain if it is a POST to a path of letters, digits, slashes, dots, dashes and underscores, has one Host
// and one Content-Length, a head of a few KiB in which each line has the form of RFC 9112, and asks for nothing of the
// connection: no chunks, no Expect, no Upgrade, no close. The first request that is not has its connection handed to
// net/http with all that came, which answers it and all that come after it. So nothing that is odd is ever interpreted
// here, and whatever is answered here means to net/http the same.
//
// It saves this: net/http reads ahead while a handler works, to learn whether the client is
// gone, which takes a goroutine and two system calls a request; sets four deadlines a request;
// and makes the request's parts anew, even when the one before was the same.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

// Server is an http.Server that answers plain requests itself. Its Handler must not use a
// request's Header or Body, or the ResponseWriter, once it has returned, and has no use
// for what http.ResponseController can do but flush. Of the fields of http.Server it heeds, for
// plain requests, those of timeouts, ConnState, ConnContext and ErrorLog.
//
// Timeouts are kept to within an eighth for waiting clients, as deadlines are only moved
// then, and a write may take up to twice the WriteTimeout, as may each part that is flushed.
type Server struct {
	*http.Server

	mu      sync.Mutex
	conns   map[*conn]struct{} // that are not net/http's
	open    sync.WaitGroup     // conns
	closing bool
}

// Serve accepts connections of l until Shutdown or Close, after which it returns
// http.ErrServerClosed. Connections that are encrypted are all net/http's, as it knows the protocol that was negotiated.
func (s *Server) Serve(l net.Listener) error { return s.Server.Serve(&front{l, s}) }

// front is a listener that keeps the connections that http1 serves.
type front struct {
	net.Listener
	server *Server
}

// Accept returns the next connection that is net/http's.
func (f *front) Accept() (net.Conn, error) {
	for {
		accepted, err := f.Listener.Accept()
		if _, secure := accepted.(*tls.Conn); secure || err != nil {
			return accepted, err
		}
		go f.server.newConn(accepted, f.Listener).serve()
	}
}

// enter reports whether c may be served, and remembers it until it leaves.
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	if s.conns == nil {
		s.conns = make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	return true
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.open.Done()
}

// close keeps new connections out and closes those that which has chosen.
func (s *Server) close(which func(*conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.conns {
		if which(c) {
			_ = c.rwc.Close() // its goroutine finds out, and leaves
		}
	}
}

// Shutdown is that of http.Server: connections that wait for a request are closed, also
// those that have just begun, and the others once they have answered. The error is ctx's if that ends first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close((*conn).stop)
	err := s.Server.Shutdown(ctx)
	gone := make(chan struct{})
	go func() {
		s.open.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Close closes all listeners and connections at once.
func (s *Server) Close() error {
	s.close(func(*conn) bool { return true })
	return s.Server.Close()
}
