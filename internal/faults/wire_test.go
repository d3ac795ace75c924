//go:build unix

package faults

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// newEcho returns a wire to a server that echoes all bytes.
func newEcho(t *testing.T) *wire {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := echo.Accept(); err == nil; conn, err = echo.Accept() {
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	w, err := newWire()
	if err != nil {
		t.Fatal(err)
	}
	w.leadTo(echo.Addr().String())
	t.Cleanup(func() {
		_ = echo.Close()
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func dial(t *testing.T, w *wire) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.address())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// echoes checks that conn's other end echoes a letter within a time.
func echoes(conn net.Conn, within time.Duration) error {
	if _, err := conn.Write([]byte("a")); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func TestWiresAreCutAndMended(t *testing.T) {
	w := newEcho(t)
	conn := dial(t, w)
	if err := echoes(conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	_ = w.cut()
	if err := echoes(conn, time.Minute); err == nil {
		t.Error("a connection outlives the cut")
	}
	if err := echoes(dial(t, w), time.Minute); err == nil {
		t.Error("a cut wire accepted a connection")
	}
	_ = w.mend()
	if err := echoes(dial(t, w), time.Minute); err != nil {
		t.Errorf("after mending: %v", err)
	}
}

func TestWiresAreStalled(t *testing.T) {
	w := newEcho(t)
	conn := dial(t, w)
	if err := echoes(conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	_ = w.hold()
	if err := echoes(conn, 50*time.Millisecond); !os.IsTimeout(err) {
		t.Errorf("while the wire is stalled: %v", err)
	}
	_ = w.release()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("the held bytes never arrived: %v", err)
	}
}
