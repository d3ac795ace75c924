// Package connections bounds the connections that a server has open at the same time, and ends them
// without losing a request: a full server closes those that wait for one, a server that stops lets
// its clients leave, and a body that nobody reads holds no connection.
//
// It knows net/http, and nothing of routes. Listeners of other servers have their Places here.
package connections

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Bound is a bound of the connections that a client can reach.
type Bound string

// The bounds.
const (
	Full Bound = "connections" // so many are open, and each has a request under way: a new one is refused
	Idle Bound = "idle"        // so many are open: the one that has waited longest for a request is closed for a new one
)

// DefaultMost is how many connections are open at the same time, unless an operator says
// otherwise: at some 40 KiB each, two thirds of a GiB.
const DefaultMost = 1 << 14

// Listener bounds the connections of a server, which is to serve it. Make one with Limit.
type Listener struct {
	net.Listener
	shut    func() error  // closes Listener, the first time
	ended   chan struct{} // closed by Close
	closing sync.Once
	last    atomic.Bool // every answer is its connection's last

	places   *Places       // whose lock is held for what follows, and for what changes of a connection
	drained  chan struct{} // closed when nobody comes any more and none is open; nil: Drain was not called
	deserted bool          // Accept has learned that nobody comes any more
}

// connection is one of a Listener.
type connection struct {
	net.Conn
	of       *Listener
	place    Place
	used     bool // it had a request
	hijacked bool // the server no longer reports its state
}

// Close closes the connection, and counts it no longer if nobody else does.
func (c *connection) Close() error {
	c.of.closed(c)
	return c.Conn.Close()
}

// CloseWrite closes the sending side, and leaves the receiving one open: net/http does so before
// it closes, where it can.
func (c *connection) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// Limit lets server have at most this many connections of those that listener
// accepts. Past it, the one that has waited longest for a request, or for its headers, is
// closed for a new one; if all are busy, the new one is refused: as a 503, where the
// client is still there to read it and TLS is not between. reached learns of both; it must not block.
func Limit(server *http.Server, listener net.Listener, most int, reached func(Bound)) *Listener {
	c := &Listener{
		Listener: listener, places: NewPlaces(most, reached), shut: sync.OnceValue(listener.Close), ended: make(chan struct{}),
	}
	server.ConnState, server.Handler = c.changed, c.endingAnswers(server.Handler)
	server.ConnContext = withConnection(server.ConnContext)
	return c
}

// Len returns how many connections are open.
func (c *Listener) Len() int {
	c.places.Lock()
	defer c.places.Unlock()
	return c.places.Taken()
}

// Waiting returns how many of them wait for a request.
func (c *Listener) Waiting() int {
	c.places.Lock()
	defer c.places.Unlock()
	return c.places.Waiting()
}

// Accept returns the next connection that there is room for. Once Drain was called it waits for
// Close: to the server it looks as if nobody came.
func (c *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			c.desert()
			return nil, err
		}
		conn := &connection{Conn: accepted, of: c}
		if c.places.Admit(&conn.place, conn) {
			return conn, nil
		}
		refuse(conn)
	}
}

// below returns the connection that conn is, perhaps with TLS and more around it; false: it came
// by another listener.
func below(conn net.Conn) (*connection, bool) {
	for wrapper, ok := conn.(interface{ NetConn() net.Conn }); ok; wrapper, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = wrapper.NetConn()
	}
	c, ok := conn.(*connection)
	return c, ok
}

// changed is called by the server with the new state of a connection.
func (c *Listener) changed(changed net.Conn, state http.ConnState) {
	conn, ok := below(changed)
	if !ok {
		return // it came by another listener
	}
	c.places.Lock()
	defer c.places.Unlock()
	switch state {
	case http.StateClosed:
		c.forget(conn)
	case http.StateHijacked:
		conn.hijacked = true
	case http.StateActive: // its headers are there
		conn.used = true
		c.places.Busy(&conn.place)
	case http.StateIdle:
		c.places.Wait(&conn.place)
	}
}

// closed learns that conn is closed.
func (c *Listener) closed(conn *connection) {
	c.places.Lock()
	defer c.places.Unlock()
	if conn.hijacked {
		c.forget(conn)
	}
}

func (c *Listener) forget(conn *connection) {
	c.places.Leave(&conn.place)
	c.checkDrained()
}

// refusal is all that a client is told which is one too many: nothing of it was read.
var refusal = []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n" +
	"Content-Type: application/problem+json\r\nContent-Length: " + strconv.Itoa(len(refusalBody)) + "\r\n\r\n" + refusalBody)

const refusalBody = `{"type":"about:blank","title":"Service Unavailable","status":503,` +
	`"detail":"All connections are busy: try again later.","recorded":"no"}`

// refusalTimeout is for a client that does not even acknowledge; the buffer of a new
// connection takes a refusal at once.
const refusalTimeout = 10 * time.Millisecond

func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = conn.Write(refusal) // an error means that the client is gone
	_ = conn.Close()
}
