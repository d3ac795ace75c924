//go:build linux && !race

package api

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// TestConnectionsAreNotAnnounced to Go's scheduler, and write a head and a body at once.
func TestConnectionsAreNotAnnounced(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connections := LimitConnections(new(http.Server), listener, 1, func(Bound) {})
	peer, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	accepted, err := connections.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn := accepted.(*connection)
	if _, ok := conn.Conn.(*net.TCPConn); ok {
		t.Error("package net reads and writes the connection")
	}
	if n, err := conn.WriteBoth([]byte("head,"), []byte("body")); n != len("head,body") || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	_ = conn.Close()
	if got, err := io.ReadAll(peer); string(got) != "head,body" || err != nil {
		t.Errorf("%q, %v came", got, err)
	}
}
