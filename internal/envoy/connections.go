package envoy

import (
	"context"
	"net"

	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// Bounds lists what a client can come too many for.
var Bounds = []connections.Bound{connections.Full, connections.Idle}

// limited bounds how many connections of a listener are open. Beyond the bound, the one that
// has waited longest for a request is closed for a new one. A connection waits as long as no
// request of it is being answered. So streams that watch health, and requests that do not come
// whole, keep nobody out.
type limited struct {
	net.Listener
	places *connections.Places
}

// connection is one of a limited listener.
type connection struct {
	net.Conn
	places   *connections.Places // whose lock is held for what follows
	place    connections.Place
	requests int // that are being answered
}

// address is a client's, which leads from a request to its connection.
type address struct {
	net.Addr
	conn *connection
}

// Accept returns the next connection that there is room for.
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &connection{Conn: accepted, places: l.places}
		if l.places.Admit(&conn.place, conn) {
			return conn, nil
		}
		_ = accepted.Close()
	}
}

// Close closes the connection, and makes room for another one.
func (c *connection) Close() error {
	c.places.Lock()
	c.places.Leave(&c.place)
	c.places.Unlock()
	return c.Conn.Close()
}

// RemoteAddr returns the client's address.
func (c *connection) RemoteAddr() net.Addr { return &address{c.Conn.RemoteAddr(), c} }

// connectionOf returns the connection of a request; nil: it came by another listener.
func connectionOf(ctx context.Context) *connection {
	from, _ := peer.FromContext(ctx)
	if from == nil {
		return nil
	}
	if at, ok := from.Addr.(*address); ok {
		return at.conn
	}
	return nil
}

// begin learns that a request of c is being answered. c may be nil.
func (c *connection) begin() {
	if c == nil {
		return
	}
	c.places.Lock()
	defer c.places.Unlock()
	c.requests++
	c.places.Busy(&c.place)
}

// end learns that a request of c was answered. c may be nil.
func (c *connection) end() {
	if c == nil {
		return
	}
	c.places.Lock()
	defer c.places.Unlock()
	if c.requests--; c.requests == 0 {
		c.places.Wait(&c.place)
	}
}
