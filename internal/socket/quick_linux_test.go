//go:build linux && !race

package socket_test

import (
	"net"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/socket"
)

func TestConnAllocatesNothing(t *testing.T) {
	conn, peer := pair(t)
	if _, ok := conn.(*net.TCPConn); ok {
		t.Fatal("the connection is as it was")
	}
	if _, err := peer.Write(make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	allocations := testing.AllocsPerRun(100, func() {
		_, readErr := conn.Read(p)
		_, writeErr := conn.Write(p)
		_, bothErr := socket.WriteBoth(conn, p, p)
		if readErr != nil || writeErr != nil || bothErr != nil {
			t.Errorf("%v, %v, %v", readErr, writeErr, bothErr)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
