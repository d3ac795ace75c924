package http1

import (
	"io"
	"net"
)

// hand hands conn to net/http, or closes it if the server is closed.
func (s *Server) hand(conn *begun, listener net.Listener) {
	one := &single{Listener: listener, conn: conn}
	_ = s.Server.Serve(one) // it returns once there is no other connection
	if one.conn != nil {
		_ = conn.Close()
	}
}

// single is a listener of one connection.
type single struct {
	net.Listener
	conn net.Conn // nil: it was accepted before
}

// Accept returns the connection, and then io.EOF.
func (s *single) Accept() (conn net.Conn, err error) {
	if s.conn == nil {
		return nil, io.EOF
	}
	conn, s.conn = s.conn, nil
	return conn, nil
}

// Close does nothing, because the connection's listener stays open.
func (s *single) Close() error { return nil }

// begun is a connection from which some bytes were read before.
type begun struct {
	net.Conn
	in io.Reader // these bytes, and then the rest
}

// Read returns the bytes that were read before first.
func (b *begun) Read(p []byte) (int, error) { return b.in.Read(p) }

// NetConn returns the accepted connection.
func (b *begun) NetConn() net.Conn { return b.Conn }

// CloseWrite closes the sending side, and leaves the receiving one open.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
