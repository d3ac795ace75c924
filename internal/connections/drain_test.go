package connections

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// patience is the deadline of events that take milliseconds on an idle machine.
const patience = time.Minute

// webServer has the methods that http1.Server and http.Server have in common.
type webServer interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// front answers every request with 200, on connections of a Listener.
type front struct {
	*Listener
	t   *testing.T
	web webServer
}

// byBoth runs a test with a server of http1, and with one of net/http.
func byBoth(t *testing.T, test func(f *front)) {
	for _, name := range []string{"fast", "std"} {
		t.Run(name, func(t *testing.T) {
			below, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
			f := &front{Limit(server, below, 10, func(Bound) {}), t, server}
			if name == "fast" {
				f.web = &http1.Server{Server: server}
			}
			served := make(chan error, 1)
			go func() { served <- f.web.Serve(f.Listener) }()
			defer func() {
				_ = f.web.Close()
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			}()
			test(f)
		})
	}
}

// waitUntil waits until a condition holds.
func (f *front) waitUntil(what string, so func() bool) {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !so(); {
		select {
		case <-tick.C:
		case <-end:
			f.t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// drain calls Drain, and returns a channel that is closed when it has returned.
func (f *front) drain() <-chan struct{} {
	drained := make(chan struct{})
	go func() {
		f.Drain(context.Background())
		close(drained)
	}()
	f.waitUntil("answers are the last ones", f.last.Load)
	return drained
}

// client is a connection to which a test writes bytes.
type client struct {
	net.Conn
	t    *testing.T
	from *bufio.Reader
}

func (f *front) dial() *client {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &client{conn, f.t, bufio.NewReader(conn)}
}

const (
	get  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
)

// ask sends a request, and fails unless the answer is a 200 that is the connection's last, or not.
func (c *client) ask(request string, wantLast bool) {
	c.t.Helper()
	_, _ = io.WriteString(c, request) // an error shows when the answer is read
	res, err := http.ReadResponse(c.from, nil)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK || res.Close != wantLast {
		c.t.Errorf("%d, the last one: %v, %v; want %v", res.StatusCode, res.Close, err, wantLast)
	}
}

// closed waits until the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c.from)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Errorf("it is still open after %v", patience)
	}
}

// TestDrain holds that each answer is the last one of its connection, whatever the request, and that the server does not wait
// for connections without a request.
func TestDrain(t *testing.T) {
	byBoth(t, func(f *front) {
		posts, gets, waits, unused := f.dial(), f.dial(), f.dial(), f.dial()
		for _, c := range []*client{posts, gets, waits} {
			c.ask(post, false)
		}
		f.waitUntil("four are open", func() bool { return f.Len() == 4 })
		began := time.Now()
		drained := f.drain()
		for c, request := range map[*client]string{posts: post, gets: get} {
			c.ask(request, true)
			c.closed()
		}
		<-drained
		unused.closed()
		if err := f.web.Shutdown(context.Background()); err != nil {
			f.t.Error(err)
		}
		waits.closed()
		if took := time.Since(began); took < DrainTime {
			f.t.Errorf("clients that wait had %v", took)
		}
	})
}

// TestDrainEndsWithTheLastConnection holds that Drain returns at once if no connection is open, or is left.
func TestDrainEndsWithTheLastConnection(t *testing.T) {
	for _, open := range []int{0, 3} {
		byBoth(t, func(f *front) {
			var clients []*client
			for range open {
				c := f.dial()
				c.ask(post, false)
				clients = append(clients, c)
			}
			drained := f.drain()
			for _, c := range clients {
				_ = c.Close()
			}
			<-drained
			select {
			case <-f.drained:
			default:
				f.t.Errorf("%d were open: it waited until the time was over", open)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := f.web.Shutdown(ctx); err != nil {
				f.t.Error(err)
			}
		})
	}
}
