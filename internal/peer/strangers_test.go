package peer

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestStrangersMakeRoom opens more connections than strangers may have, by each way of saying too little: the oldest
// are closed, and a peer is served throughout.
func TestStrangersMakeRoom(t *testing.T) {
	creds, err := SharedSecret([]byte("correct horse battery"))
	if err != nil {
		t.Fatal(err)
	}
	address, _ := serve(t, "127.0.0.1:0", creds, deny)
	before, _ := connect(t, address, creds)
	if err := await(t, before, take(1)); err != nil {
		t.Fatal(err)
	}
	var oldest net.Conn
	for range maxStrangers + 1 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if oldest == nil {
			oldest = conn
		}
	}
	_ = oldest.SetReadDeadline(time.Now().Add(20 * time.Second))
	began := time.Now()
	if _, err := oldest.Read(make([]byte, 1)); !isEnd(err) || time.Since(began) >= handshake/2 {
		t.Errorf("the oldest stranger ends with %v after %v, want at once", err, time.Since(began))
	}
	after, _ := connect(t, address, creds)
	for _, pool := range []*Pool{before, after} {
		if err := await(t, pool, take(1)); err != nil {
			t.Errorf("a peer among strangers: %v", err)
		}
	}
	if n := before.Counts().Failed; n > 0 {
		t.Errorf("%d calls failed: the peer's connection was closed for a stranger's", n)
	}
}

// TestSlowHandshakesEnd holds that a connection which does not get as far as a call ends soon.
func TestSlowHandshakesEnd(t *testing.T) {
	secret, err := SharedSecret([]byte("correct horse battery"))
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	address, _ := serve(t, "127.0.0.1:0", secret, nil)
	open, _ := serve(t, "127.0.0.1:0", plain, nil)
	silent := make(map[string]net.Conn)
	for what, to := range map[string]string{"with a secret": address, "without": open} {
		conn, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(3 * handshake))
		silent[what] = conn
	}
	for what, conn := range silent {
		if _, err := io.Copy(io.Discard, conn); !isEnd(err) {
			t.Errorf("%s: a connection that says nothing is open after %v: %v", what, 3*handshake, err)
		}
	}
}

// isEnd reports whether the other side ended the connection.
func isEnd(err error) bool {
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}
