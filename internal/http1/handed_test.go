package http1

import (
	"net"
	"testing"
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

// TestBegun is the connection that was accepted, to who asks.
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
