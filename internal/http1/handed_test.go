package http1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// half is a connection that knows whether its sending side was closed.
type half struct {
	net.Conn
	closed bool
}

// CloseWrite closes the sending side.
func (h *half) CloseWrite() error {
	h.closed = true
	return nil
}

// TestBegun holds that NetConn returns the accepted connection.
func TestBegun(t *testing.T) {
	accepted := new(half)
	b := &begun{Conn: accepted}
	if err := b.CloseWrite(); err != nil || !accepted.closed {
		t.Errorf("closed: %v, %v", accepted.closed, err)
	}
	if b.NetConn() != accepted {
		t.Errorf("NetConn is %v", b.NetConn())
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := (&begun{Conn: near}).CloseWrite(); err != nil {
		t.Error(err)
	}
}

// TestHandedTooLate holds that a connection is closed if net/http has stopped.
func TestHandedTooLate(t *testing.T) {
	s := &Server{Server: new(http.Server)}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	near, far := net.Pipe()
	s.hand(&begun{Conn: far}, nil)
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Second)) // for when it fails
	if n, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v: it is still open", n, err)
	}
}
