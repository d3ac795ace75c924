// Package connections bounds the open connections of a server, and closes them without losing a request: a full server
// closes idle ones, a server that stops lets its clients leave, and an unread body does not hold a connection.
//
// It knows net/http, and nothing about routes. Listeners of other servers use its Places.
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
	Full Bound = "connections" // the maximum is open, all of them busy: a new one is refused
	Idle Bound = "idle"        // the maximum is open: the longest idle one is closed for a new one
)

// DefaultMost is the default maximum of open connections. At some 40 KiB each, they take two thirds of a GiB.
const DefaultMost = 1 << 14

// Listener bounds the connections of a server that serves it. Make one with Limit.
type Listener struct {
	net.Listener
	shut    func() error  // closes Listener, the first time
	ended   chan struct{} // closed by Close
	closing sync.Once
	last    atomic.Bool // every answer is its connection's last

	places   *Places       // its lock guards the following fields, and those of connections
	drained  chan struct{} // closed once there are no more connections; nil: Drain was not called
	deserted bool          // Accept has returned an error
}

// connection is a connection of a Listener.
type connection struct {
	net.Conn
	of       *Listener
	place    Place
	used     bool // it had a request
	hijacked bool // the server no longer reports its state
}

// Close closes the connection, and ends its counting if the server does not.
func (c *connection) Close() error {
	c.of.closed(c)
	return c.Conn.Close()
}

// CloseWrite closes the sending side, and leaves the receiving one open. net/http calls it before it closes a
// connection.
func (c *connection) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// Limit returns a listener that accepts at most this many connections for server. Beyond that, the one that has been
// idle, or without complete headers, the longest is closed for a new one. If all are busy, the new one is refused,
// without TLS by a 503. reached is called in both cases, and must not block.
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

// Waiting returns the number of idle connections.
func (c *Listener) Waiting() int {
	c.places.Lock()
	defer c.places.Unlock()
	return c.places.Waiting()
}

// Accept returns the next connection for which there is room. After Drain it waits for Close, so that the server sees
// no error.
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

// below returns the connection inside conn, which may be wrapped by TLS and others; false if it came from another
// listener.
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

// closed is called when conn is closed.
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

// refusal is the answer to a client beyond the bound, of which nothing was read.
var refusal = []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n" +
	"Content-Type: application/problem+json\r\nContent-Length: " + strconv.Itoa(len(refusalBody)) + "\r\n\r\n" + refusalBody)

const refusalBody = `{"type":"about:blank","title":"Service Unavailable","status":503,` +
	`"detail":"All connections are busy: try again later.","recorded":"no"}`

// refusalTimeout is for a client that acknowledges nothing. A refusal fits into the buffer of a new connection.
const refusalTimeout = 10 * time.Millisecond

func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = conn.Write(refusal) // an error means that the client is gone
	_ = conn.Close()
}
