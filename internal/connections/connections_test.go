package connections

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHijackedConnectionsCount holds that hijacked connections count until they are closed.
func TestHijackedConnectionsCount(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hijacked, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		close(hijacked)
		<-leave
		_ = conn.Close()
		close(left)
	})}
	defer server.Close()
	connections := Limit(server, listener, 1, func(Bound) {})
	go func() { _ = server.Serve(connections) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	first := dial()
	defer first.Close()
	if _, err := io.WriteString(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-hijacked
	second := dial()
	defer second.Close()
	if line, err := bufio.NewReader(second).ReadString('\n'); !strings.Contains(line, "503") || err != nil {
		t.Errorf("beside a hijacked connection: %q, %v", line, err)
	}
	close(leave)
	<-left
	if n := connections.Len(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}
