// Package http1 answers plain requests of HTTP/1.1 with about half the work that net/http does for them, and leaves all
// others to net/http.
//
// A request is plain if it is a POST to a path of letters, digits, slashes, dots, dashes and underscores, has one Host
// and one Content-Length, a head of a few KiB in which each line has the form of RFC 9112, and asks for nothing of the
// connection: no chunks, no Expect, no Upgrade, no close. At the first other request, the package hands the connection to
// net/http with all bytes that arrived. net/http answers that request and all that follow. So this package interprets no
// unusual request, and net/http would read the requests that it answers alike.
//
// net/http does more for each request: while a handler works, it reads ahead to learn whether the client is gone, by a
// goroutine and two system calls; it sets four deadlines; and it parses a head anew that is equal to the one before.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

// Server is an http.Server that answers plain requests itself. After it has returned, its Handler must not use a
// request's Header or Body, or the ResponseWriter. An http.ResponseController can only flush, and set the deadline of
// reads. For plain requests, the fields of http.Server that apply are its timeouts, ConnState, ConnContext and ErrorLog.
//
// Waiting for a request may end an eighth of the timeout early, so that few requests set a deadline. A write, and each
// part that is flushed, may take up to twice the WriteTimeout.
type Server struct {
	*http.Server

	mu      sync.Mutex
	conns   map[*conn]struct{} // without those of net/http
	open    sync.WaitGroup     // conns
	closing bool
}

// Serve accepts connections of l until Shutdown or Close, and then returns http.ErrServerClosed. It leaves encrypted
// connections to net/http, which knows the negotiated protocol.
func (s *Server) Serve(l net.Listener) error { return s.Server.Serve(&front{l, s}) }

// front is a listener for net/http, without the connections that http1 serves.
type front struct {
	net.Listener
	server *Server
}

// Accept returns the next connection for net/http.
func (f *front) Accept() (net.Conn, error) {
	for {
		accepted, err := f.Listener.Accept()
		if _, secure := accepted.(*tls.Conn); secure || err != nil {
			return accepted, err
		}
		go f.server.newConn(accepted, f.Listener).serve()
	}
}

// enter reports whether c may be served, and adds it to the connections until leave is called.
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

// close refuses new connections, and closes those for which which returns true.
func (s *Server) close(which func(*conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.conns {
		if which(c) {
			_ = c.rwc.Close() // its goroutine finds out, and ends
		}
	}
}

// Shutdown is http.Server's: it closes connections that wait for a request, also their first one, and the others after
// their answer. The error is ctx's if that ends first.
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
