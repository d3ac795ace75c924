package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bound is one of the server's bounds of memory that a client can reach.
type Bound string

// The bounds.
const (
	BoundConnections Bound = "connections" // so many are open, and each has a request under way: a new one is refused
	BoundIdle        Bound = "idle"        // so many are open: the one that has waited longest for a request is closed for a new one
	BoundBodies      Bound = "bodies"      // bodies that are being read or answered take so much memory: a large one is refused
)

// Bounds lists all of them.
var Bounds = []Bound{BoundConnections, BoundIdle, BoundBodies}

// DefaultMaxConnections is how many connections are open at the same time, unless an
// operator says otherwise: at some 40 KiB each, two thirds of a GiB.
const DefaultMaxConnections = 1 << 14

// Connections bounds the connections of a server. It is the listener to serve; make one
// with LimitConnections.
type Connections struct {
	net.Listener
	most    int
	reached func(Bound)

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // of waiting; nil: a request is under way
	waiting list.List                  // of net.Conn: those that wait for a request, the longest first
}

// LimitConnections lets server have at most this many connections of those that listener
// accepts. Past it, the one that has waited longest for a request, or for its headers, is
// closed for a new one; if all are busy, the new one is refused: as a 503, where the
// client is still there to read it. reached learns of both; it must not block.
func LimitConnections(server *http.Server, listener net.Listener, most int, reached func(Bound)) *Connections {
	c := &Connections{Listener: listener, most: most, reached: reached, open: make(map[net.Conn]*list.Element)}
	server.ConnState = c.changed
	return c
}

// Len returns how many connections are open.
func (c *Connections) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Accept returns the next connection that there is room for.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil || c.admit(conn) {
			return conn, err
		}
		refuse(conn)
	}
}

// admit counts conn, and closes another one for it where that is needed.
func (c *Connections) admit(conn net.Conn) bool {
	longest, admitted := c.enter(conn)
	switch {
	case !admitted:
		c.reached(BoundConnections)
	case longest != nil:
		c.reached(BoundIdle)
		_ = longest.Close() // its server finds out
	}
	return admitted
}

// enter counts conn. It returns the connection that has to be closed for it, if any.
func (c *Connections) enter(conn net.Conn) (longest net.Conn, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.most {
		first := c.waiting.Front()
		if first == nil {
			return nil, false
		}
		longest = first.Value.(net.Conn)
		c.forget(longest)
	}
	c.open[conn] = c.waiting.PushBack(conn)
	return longest, true
}

// changed is told by the server what becomes of conn.
func (c *Connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, open := c.open[conn]
	switch {
	case !open: // it was closed for another one
	case state == http.StateClosed || state == http.StateHijacked:
		c.forget(conn)
	case state == http.StateActive && place != nil: // its headers are there
		c.waiting.Remove(place)
		c.open[conn] = nil
	case state == http.StateIdle && place == nil:
		c.open[conn] = c.waiting.PushBack(conn)
	}
}

func (c *Connections) forget(conn net.Conn) {
	if place := c.open[conn]; place != nil {
		c.waiting.Remove(place)
	}
	delete(c.open, conn)
}

// refusal is all that a client is told which is one too many: nothing of it was read.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

// refusalTimeout is for a client that does not even acknowledge; the buffer of a new
// connection takes a refusal at once.
const refusalTimeout = 10 * time.Millisecond

func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = conn.Write([]byte(refusal)) // whoever is gone does not miss it
	_ = conn.Close()
}
