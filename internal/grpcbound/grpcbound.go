// Package grpcbound bounds the open connections of a gRPC server, as package connections does for HTTP servers.
//
// It knows nothing about the calls.
package grpcbound

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// Bounds are the bounds that a client can reach.
var Bounds = []connections.Bound{connections.Full, connections.Idle}

// Listener bounds the connections of a gRPC server that serves it. Beyond a bound, the longest idle connection is
// closed for a new one. A connection is idle until Begin is called, and after all its requests have ended. So
// handshakes, streams that watch health and incomplete requests do not keep others out.
type Listener struct {
	net.Listener
	places *connections.Places
}

// Limit returns listener with as many connections as places has.
func Limit(listener net.Listener, places *connections.Places) *Listener {
	return &Listener{Listener: listener, places: places}
}

// Accept returns the next connection for which there is room.
func (l *Listener) Accept() (net.Conn, error) {
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

// Len returns how many connections are open.
func (l *Listener) Len() int {
	l.places.Lock()
	defer l.places.Unlock()
	return l.places.Taken()
}

// Begin marks the connection of ctx's request as busy, until end is called.
func Begin(ctx context.Context) (end func()) {
	conn := connectionOf(ctx)
	conn.begin()
	return conn.end
}

// Options returns interceptors that call Begin for each request of a server.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
		) (any, error) {
			defer Begin(ctx)()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			defer Begin(stream.Context())()
			return handle(srv, stream)
		}),
	}
}

// connection is a connection of a Listener.
type connection struct {
	net.Conn
	places   *connections.Places // its lock guards the following fields
	place    connections.Place
	requests int // in progress
}

// address is the address of a client, with its connection.
type address struct {
	net.Addr
	conn *connection
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

// connectionOf returns the connection of a request, nil if it came from another listener.
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

// begin notes the begin of a request of c, which may be nil.
func (c *connection) begin() {
	if c == nil {
		return
	}
	c.places.Lock()
	defer c.places.Unlock()
	c.requests++
	c.places.Busy(&c.place)
}

// end notes the end of a request of c, which may be nil.
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
