package http1

import (
	"net"
	"sync"
)

// handed is the listener of connections that are net/http's.
type handed struct {
	net.Listener
	conns  chan net.Conn
	errs   chan error
	once   sync.Once
	closed chan struct{}
}

// take hands conn to net/http, or closes it if that takes no more.
func (h *handed) take(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.closed:
		_ = conn.Close()
	}
}

// fail has net/http decide about err of the listener. It reports whether that still serves.
func (h *handed) fail(err error) bool {
	select {
	case h.errs <- err:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection, or error of the listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case err := <-h.errs:
		return nil, err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Listener.Close()
}

// begun is a connection of which something was read already.
type begun struct {
	net.Conn
	unread []byte
}

// Read reads what is unread first.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.unread) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.unread)
	if b.unread = b.unread[n:]; len(b.unread) == 0 {
		b.unread = nil
	}
	return n, nil
}

// NetConn returns the connection that was accepted.
func (b *begun) NetConn() net.Conn { return b.Conn }

// CloseWrite ends what is sent, and leaves open what is received.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
