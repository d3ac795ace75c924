package envoy

import (
	"container/list"
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// Bound is what a client came too many for.
type Bound string

// The bounds.
const (
	BoundConnections Bound = "connections" // so many are open, and each has a request under way: a new one is closed
	BoundIdle        Bound = "idle"        // so many are open: the one that has waited longest for a request is closed for a new one
)

// Bounds lists all of them.
var Bounds = []Bound{BoundConnections, BoundIdle}

// connections bounds how many connections of a listener are open. Beyond the bound, the one that
// has waited longest for a request is closed for a new one. A connection waits as long as no
// request of it is being answered. So streams that watch health, and requests that do not come
// whole, keep nobody out.
type connections struct {
	net.Listener
	most    int
	reached func(Bound) // nil: nobody learns of it

	mu      sync.Mutex
	open    int
	waiting list.List // of *connection: those that wait for a request, the longest first
}

// connection is one of connections.
type connection struct {
	net.Conn
	of       *connections
	open     bool
	requests int           // that are being answered
	place    *list.Element // in waiting; nil: it does not wait
}

// address is a client's, which leads from a request to its connection.
type address struct {
	net.Addr
	conn *connection
}

// Accept returns the next connection that there is room for.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &connection{Conn: accepted, of: c}
		longest, admitted := c.enter(conn)
		switch {
		case !admitted:
			c.tell(BoundConnections)
			_ = accepted.Close()
			continue
		case longest != nil:
			c.tell(BoundIdle)
			_ = longest.Close() // its server finds out
		}
		return conn, nil
	}
}

func (c *connections) tell(bound Bound) {
	if c.reached != nil {
		c.reached(bound)
	}
}

// enter counts conn. It returns the connection that has to be closed for it, if any.
func (c *connections) enter(conn *connection) (longest *connection, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		first := c.waiting.Front()
		if first == nil {
			return nil, false
		}
		longest = first.Value.(*connection)
		c.forget(longest)
	}
	c.open++
	conn.open, conn.place = true, c.waiting.PushBack(conn)
	return longest, true
}

// forget is called under the lock.
func (c *connections) forget(conn *connection) {
	if !conn.open {
		return
	}
	c.stopWaiting(conn)
	conn.open = false
	c.open--
}

// stopWaiting is called under the lock.
func (c *connections) stopWaiting(conn *connection) {
	if conn.place != nil {
		c.waiting.Remove(conn.place)
		conn.place = nil
	}
}

// Len returns how many connections are open.
func (c *connections) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Close closes the connection, and makes room for another one.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
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
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.requests++
	c.of.stopWaiting(c)
}

// end learns that a request of c was answered. c may be nil.
func (c *connection) end() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.requests--; c.requests == 0 && c.open {
		c.place = c.of.waiting.PushBack(c)
	}
}
