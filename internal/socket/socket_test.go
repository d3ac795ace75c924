package socket_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/socket"
)

// large is more than the kernel takes of a writer whose reader does not read.
const large = 16 << 20

// pair returns both ends of a connection, the first one by Conn.
func pair(t *testing.T) (conn net.Conn, peer *net.TCPConn) {
	t.Helper()
	near, far := connected(t)
	return socket.Conn(near), far
}

// connected returns both ends of a connection.
func connected(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

// random returns bytes that are the same each time.
func random(length int) []byte {
	b := make([]byte, length)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func TestAllArrivesInOrder(t *testing.T) {
	all := random(large)
	writes := map[string]func(conn net.Conn) (int, error){
		"one":          func(conn net.Conn) (int, error) { return conn.Write(all) },
		"two":          func(conn net.Conn) (int, error) { return socket.WriteBoth(conn, all[:large/3], all[large/3:]) },
		"two, one not": func(conn net.Conn) (int, error) { return socket.WriteBoth(conn, nil, all) },
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			conn, peer := pair(t)
			received := make(chan []byte)
			go func() {
				time.Sleep(20 * time.Millisecond) // until the writer has to wait
				got, _ := io.ReadAll(peer)
				received <- got
			}()
			if n, err := write(conn); n != large || err != nil {
				t.Errorf("wrote %d bytes, %v; want %d", n, err, large)
			}
			_ = conn.Close()
			if got := <-received; !bytes.Equal(got, all) {
				t.Errorf("%d bytes came, and not those %d that were written", len(got), large)
			}
		})
	}
}

func TestReadsWhatComes(t *testing.T) {
	conn, peer := pair(t)
	all := random(large)
	go func() {
		_, _ = peer.Write(all)
		_ = peer.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, all) {
		t.Errorf("read %d bytes, %v; want the %d that were written", len(got), err, large)
	}
	if n, err := conn.Read(nil); n != 0 || err != nil {
		t.Errorf("reading nothing: %d, %v; want 0, no error", n, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // callers compare
		t.Errorf("after the end: %v; want io.EOF itself", err)
	}
}

func TestWritersWaitTheirTurn(t *testing.T) {
	conn, peer := pair(t)
	const block, each = 1 << 20, 4
	for _, letter := range []byte("ab") {
		go func() {
			for range each {
				_, _ = conn.Write(bytes.Repeat([]byte{letter}, block))
			}
		}()
	}
	got := make([]byte, block)
	for range 2 * each {
		if _, err := io.ReadFull(peer, got); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(got, got[:1]); n != block {
			t.Fatalf("%d bytes of a write came without the other %d", n, block-n)
		}
	}
}

func TestReadersGetEachByteOnce(t *testing.T) {
	conn, peer := pair(t)
	const length, readers = 1 << 20, 2
	all := random(length)
	go func() {
		_, _ = peer.Write(all)
		_ = peer.CloseWrite()
	}()
	var wait sync.WaitGroup
	var seen [readers][256]int
	for i := range readers {
		wait.Go(func() {
			p := make([]byte, 1<<10)
			for {
				n, err := conn.Read(p)
				for _, b := range p[:n] {
					seen[i][b]++
				}
				if err != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	for b := range 256 {
		if got, want := seen[0][b]+seen[1][b], bytes.Count(all, []byte{byte(b)}); got != want {
			t.Fatalf("byte %d was read %d times, and written %d times", b, got, want)
		}
	}
}

func TestReadDeadline(t *testing.T) {
	conn, _ := pair(t)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	wantTimeout(t, err)
	wantOp(t, err, "read")
}

func TestWriteDeadlineHalfWay(t *testing.T) {
	conn, peer := pair(t)
	type result struct {
		n   int
		err error
	}
	written := make(chan result)
	go func() {
		n, err := conn.Write(make([]byte, large))
		written <- result{n, err}
	}()
	if _, err := io.ReadFull(peer, make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(-time.Second))
	got := <-written
	wantTimeout(t, got.err)
	wantOp(t, got.err, "write")
	if got.n == 0 || got.n == large {
		t.Errorf("%d bytes of %d were written, of which one was read", got.n, large)
	}
	_ = conn.Close()
	if rest, err := io.Copy(io.Discard, peer); int(rest)+1 != got.n || err != nil {
		t.Errorf("%d bytes came, %v; %d were written", rest+1, err, got.n)
	}
}

// wantTimeout fails unless err is what a deadline ends with.
func wantTimeout(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v; want a timeout", err)
	}
}

func TestDeadlineThatIsMoved(t *testing.T) {
	conn, peer := pair(t)
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("past the deadline: %v; want a timeout", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("without a deadline: %d bytes, %v; want 1", n, err)
	}
}

func TestCloseEndsWhoWaits(t *testing.T) {
	conn, _ := pair(t)
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := conn.Read(make([]byte, 1))
			failed <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read that waited: %v; want net.ErrClosed", err)
		} else {
			wantOp(t, err, "read")
		}
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after it: %v; want net.ErrClosed", err)
	}
}

func TestCloseWriteLeavesReadingOpen(t *testing.T) {
	conn, peer := pair(t)
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T has no CloseWrite", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(peer); len(got) > 0 || err != nil {
		t.Errorf("%q, %v came; want the end", got, err)
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v; want 1", n, err)
	}
}

func TestErrorsOfTheSystem(t *testing.T) {
	conn, peer := pair(t)
	_ = peer.SetLinger(0)
	_ = peer.Close() // with a reset
	_, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v; want ECONNRESET", err)
	}
	wantOp(t, err, "read")
	if _, err = conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v; want EPIPE", err)
	}
	wantOp(t, err, "write")
	if n, err := socket.WriteBoth(conn, []byte("x"), []byte("y")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write of both: %d, %v; want 0, EPIPE", n, err)
	}
}

// wantOp fails unless err says what failed, as net/http and the driver ask.
func wantOp(t *testing.T, err error, op string) {
	t.Helper()
	var of *net.OpError
	if !errors.As(err, &of) || of.Op != op || of.Addr == nil {
		t.Errorf("%v; want a net.OpError of %s with the address", err, op)
	}
}

func TestWhatIsNoSocketStaysAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		if conn := socket.Conn(near); conn != near {
			t.Errorf("a pipe became %T", conn)
		}
		go func() {
			n, err := socket.WriteBoth(near, []byte("one,"), []byte("two"))
			if n != len("one,two") || err != nil {
				t.Errorf("wrote %d bytes, %v", n, err)
			}
			_ = near.Close()
		}()
		if got, err := io.ReadAll(far); string(got) != "one,two" || err != nil {
			t.Errorf("%q, %v came", got, err)
		}
	})
}
