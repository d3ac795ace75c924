package http1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// server has the methods that http.Server and http1.Server have in common.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// fast returns the server of this package.
func fast(s *http.Server) server { return &http1.Server{Server: s} }

// std returns the server of net/http.
func std(s *http.Server) server { return s }

// byBoth runs a test by each of the two servers, in a synctest bubble.
func byBoth(t *testing.T, test func(t *testing.T, by func(*http.Server) server)) {
	for name, by := range map[string]func(*http.Server) server{"fast": fast, "std": std} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, by) })
		})
	}
}

// pipes is a listener of connections in memory, whose deadlines are of the time of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept returns the other end of a connection from dial.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr returns an address of no meaning.
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// front is a server under test, with the states of its connections.
type front struct {
	t        testing.TB
	server   server
	listener *pipes
	served   chan error
	logged   strings.Builder

	mu     sync.Mutex
	states []http.ConnState
}

// newFront serves handler, by fast or std, until the test ends.
func newFront(t testing.TB, by func(*http.Server) server, handler http.HandlerFunc, change ...func(*http.Server)) *front {
	f := &front{t: t, listener: newPipes(), served: make(chan error, 1)}
	s := &http.Server{Handler: handler, ErrorLog: log.New(&f.logged, "", 0), ConnState: f.note}
	for _, c := range change {
		c(s)
	}
	f.server = by(s)
	go func() { f.served <- f.server.Serve(f.listener) }()
	t.Cleanup(func() { ended(t, f.server, f.served) })
	return f
}

// ended closes s, and waits until Serve has returned.
func ended(t testing.TB, s server, served <-chan error) {
	t.Helper()
	_ = s.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func (f *front) note(_ net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = append(f.states, state)
}

func (f *front) noted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	words := make([]string, len(f.states))
	for i, s := range f.states {
		words[i] = s.String()
	}
	return strings.Join(words, " ")
}

// client is one end of a connection.
type client struct {
	net.Conn
	t    testing.TB
	from *bufio.Reader
}

func (f *front) dial() *client {
	conn := f.listener.dial()
	f.t.Cleanup(func() { _ = conn.Close() })
	return &client{Conn: conn, t: f.t, from: bufio.NewReader(conn)}
}

func (c *client) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Errorf("sending %q: %v", text, err)
	}
}

// hear reads the next answer with its body.
func (c *client) hear() (*http.Response, string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.from, nil)
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Errorf("reading a body: %v", err)
	}
	return res, string(body)
}

// wantAnswer reads an answer, which must be a 200 with this body.
func (c *client) wantAnswer(want string) {
	c.t.Helper()
	if res, body := c.hear(); res.StatusCode != http.StatusOK || body != want {
		c.t.Errorf("%d %q, want 200 %q", res.StatusCode, body, want)
	}
}

// wantEnd waits for the end of the connection, which must come without another byte, and returns how long that took.
func (c *client) wantEnd() time.Duration {
	c.t.Helper()
	start := time.Now()
	if rest, err := io.ReadAll(c.from); err != nil || len(rest) > 0 {
		c.t.Errorf("%q, %v instead of the connection's end", rest, err)
	}
	return time.Since(start)
}

// post returns a plain request.
func post(body string) string { return postWith("", body) }

// postWith returns a plain request with more lines in its head.
func postWith(lines, body string) string {
	return "POST /echo HTTP/1.1\r\nHost: test\r\n" + lines + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body
}

// echo answers with the request's body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(body)
}
