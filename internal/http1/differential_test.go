package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzConnection serves connections with the same bytes, in the same pieces, by http1 and by net/http. Handlers must get
// the same requests, and clients the same answers.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{
		post("{}") + post("") + post(strings.Repeat("x", 5000)),
		post("1") + "\r\n" + post("12") + "\r\n\r\n" + post("123") + "\n\n\n\n\n" + post("1234"),
		postWith("Connection: close\r\n", "1") + post("never"),
		postWith("Expect: 100-continue\r\n", "1") + post("2"),
		postWith("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n") + post("2"),
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + post("2"),
		postWith("Content-Length: 3\r\n", "12") + post("2"),
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + post("2") + "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + post("3"),
		"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\n1" + post("2"),
		"POST http://a/b?c HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1" + post("2"),
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nshort",
		"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\n A: b\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\n1" + post("2"),
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n" + post("2"),
		"POST /%0a HTTP/1.1\r\nHost: a:80:80\r\nContent-Length: 0\r\n\r\n" + post("2"),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01", "\r\n", "",
	} {
		for _, pieces := range []string{"\x00", "\x01", "\x07", "\x85"} {
			f.Add([]byte(seed), []byte(pieces), false)
		}
	}
	f.Fuzz(serveAlike)
}

// FuzzRequests is FuzzConnection with requests of a grammar, whose alternatives a fuzzer of bytes seldom finds.
func FuzzRequests(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(someChoices(seed, 400), someChoices(seed+1000, int(seed)%4), seed%8 == 0)
	}
	f.Fuzz(func(t *testing.T, choices, pieces []byte, reset bool) {
		serveAlike(t, drawStream(choices), pieces, reset)
	})
}

// TestCutAnywhere cuts requests into two pieces, at each byte.
func TestCutAnywhere(t *testing.T) {
	for _, sent := range []string{
		post("1") + post("") + "\r\n" + post("12345"),
		post("1") + "GET / HTTP/1.1\r\nHost: a\r\n\r\n" + post("2"),
		"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n" + postWith("Content-Length: 3\r\n", "123") + post("2"),
	} {
		for at := range len(sent) {
			const most = 0x7f // bytes of a piece
			pieces := append(bytes.Repeat([]byte{most}, at/most), byte(at%most), 0x80)
			if at%most == 0 {
				pieces = append(pieces[:at/most], 0x80)
			}
			serveAlike(t, []byte(sent), pieces, false)
		}
	}
}

// TestGrammarReachesBoth holds that http1 answers many requests of the grammar itself, and hands many to net/http, also on
// one connection.
func TestGrammarReachesBoth(t *testing.T) {
	own, handed, both := 0, 0, 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			asked := serveScript(t, fast, coming{left: drawStream(someChoices(seed, 400))}).asked
			first := slices.IndexFunc(asked, func(a asks) bool { return !a.own })
			if first < 0 {
				first = len(asked)
			}
			own, handed = own+first, handed+len(asked)-first
			if first > 0 && first < len(asked) {
				both++
			}
		})
	}
	if own < 100 || handed < 100 || both < 10 {
		t.Errorf("http1 answers %d itself, hands %d on, and does both by %d connections", own, handed, both)
	}
}

// serveAlike fails unless http1 and net/http serve a connection alike. Its end is an error if reset.
func serveAlike(t *testing.T, sent, pieces []byte, reset bool) {
	t.Helper()
	if len(sent) > 64<<10 {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		comes := coming{left: sent, pieces: pieces, reset: reset}
		got := serveScript(t, fast, comes)
		want := serveScript(t, std, comes)
		if !slices.EqualFunc(got.asked, want.asked, asks.same) {
			t.Errorf("%q: http1's handler was asked\n%+v\nnet/http's\n%+v", sent, got.asked, want.asked)
		}
		if reset {
			return // the client reads nothing any more
		}
		if one, other := got.told(t), want.told(t); !slices.EqualFunc(one, other, tells.same) {
			t.Errorf("%q: http1 answers\n%.2000s\nnet/http\n%.2000s", sent, fmt.Sprint(one), fmt.Sprint(other))
		}
	})
}

// asks is a request as a handler sees it.
type asks struct {
	head      string
	header    http.Header
	body      string
	failed    bool // reading the body
	own       bool // of http1, not of net/http
	cancelled bool // while the handler waited, and the client had not left
}

// same reports whether a and b, as the two servers have read them, are the same request.
func (a asks) same(b asks) bool {
	a.own = b.own
	return reflect.DeepEqual(a, b) && !a.cancelled
}

// tells is an answer.
type tells struct {
	status int
	header http.Header
	body   string
	last   bool
}

// same reports whether a and b are the same answer. a may be the last one of its connection when b is not: http1 closes
// connections after a body that broke off.
func (a tells) same(b tells) bool {
	a.last = a.last && b.last
	return reflect.DeepEqual(a, b)
}

// talk has the requests and answers of a connection.
type talk struct {
	asked []asks
	out   []byte
}

// serveScript serves one connection by a server.
func serveScript(t *testing.T, by func(*http.Server) server, comes coming) (of talk) {
	t.Helper()
	conn := &script{coming: comes, closed: make(chan struct{}), moved: make(chan struct{})}
	s := by(newServer(func(w http.ResponseWriter, r *http.Request) {
		asked := asks{
			head: fmt.Sprintf("%s %s %v %s %s %d %q %v %v", r.Method, r.RequestURI, r.URL, r.Proto, r.Host, r.ContentLength,
				r.TransferEncoding, r.Close, r.Trailer),
			header: r.Header.Clone(),
		}
		_, handed := w.(http.Hijacker)
		asked.own = !handed
		body := asked.read(r)
		asked.cancelled = asked.cancelled && !conn.over.Load()
		asked.body = string(body)
		of.asked = append(of.asked, asked)
		answerAnyhow(w, body)
	}))
	listener, served := newPipes(), make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	listener.conns <- conn
	<-conn.closed
	ended(t, s, served)
	of.out = conn.out.Bytes()
	return of
}

// handlerWaits is longer than watchAfter, and not a multiple of a pause.
const handlerWaits = 170 * time.Millisecond

// read reads the body of r, all of it unless the path is /deaf or /part. With the path /wait, the
// handler waits for the client to leave.
func (a *asks) read(r *http.Request) []byte {
	from := r.Body
	switch r.URL.Path {
	case "/deaf":
		return nil
	case "/part":
		from = io.NopCloser(io.LimitReader(from, 2))
	}
	body, err := io.ReadAll(from)
	a.failed = err != nil
	if r.URL.Path == "/wait" {
		select {
		case <-r.Context().Done():
			a.cancelled = true
		case <-time.After(handlerWaits):
		}
	}
	return body
}

// answerAnyhow answers in one of several ways, by the length of the body.
func answerAnyhow(w http.ResponseWriter, body []byte) {
	const kinds = 6
	w.Header().Set("Content-Type", "text/plain")
	switch len(body) % kinds {
	case 0:
		_, _ = w.Write(body)
	case 1:
		w.WriteHeader(http.StatusNoContent)
	case 2:
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
	case 3:
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "abc")
	case 4:
		_, _ = w.Write(body)
		w.(http.Flusher).Flush()
		_, _ = w.Write(body)
	}
}

// told returns the answers in out.
func (of talk) told(t *testing.T) (all []tells) {
	t.Helper()
	from := bufio.NewReader(bytes.NewReader(of.out))
	for i := 0; ; i++ {
		if _, err := from.Peek(1); err != nil {
			return all
		}
		asked := &http.Request{Method: http.MethodPost}
		if i < len(of.asked) {
			asked.Method, _, _ = strings.Cut(of.asked[i].head, " ")
		}
		res, err := http.ReadResponse(from, asked)
		if err != nil {
			t.Fatalf("answer %d of %q: %v", i, of.out, err)
		}
		if res.StatusCode == http.StatusContinue {
			i--
			continue
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("the body of answer %d of %q: %v", i, of.out, err)
		}
		for _, framing := range []string{"Date", "Connection", "Content-Length"} { // which may be in chunks instead
			res.Header.Del(framing)
		}
		all = append(all, tells{res.StatusCode, res.Header, string(body), res.Close})
	}
}

// coming has the bytes that a client sends.
type coming struct {
	left []byte
	// pieces has the number of bytes of each piece, 0 for the rest, and in the highest bit whether a pause comes before.
	// After the last one, they begin anew. Empty: all bytes come at once.
	pieces []byte
	reset  bool // it ends with an error
}

// script is a connection with known bytes.
type script struct {
	coming

	mu       sync.Mutex
	pieceOf  int // pieces that have begun
	piece    int // bytes of the current one
	due      time.Time
	deadline time.Time
	moved    chan struct{} // closed when deadline moves
	out      bytes.Buffer
	over     atomic.Bool // the server has read the end
	once     sync.Once
	closed   chan struct{}
}

// pauses are the times between pieces of a script, in which http1 begins to watch the connection.
const pauses = 101 * time.Millisecond

// Read returns the next piece, or as much as p has room for.
func (s *script) Read(p []byte) (int, error) {
	for {
		n, due, moved, err := s.next(p)
		if due <= 0 {
			return n, err
		}
		select {
		case <-time.After(due):
		case <-moved:
		case <-s.closed:
		}
	}
}

// next is Read, with the deadline due.
func (s *script) next(p []byte) (n int, due time.Duration, moved <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return 0, 0, nil, net.ErrClosed
	default:
	}
	if s.piece == 0 && s.due.IsZero() {
		s.beginPiece()
	}
	now := time.Now()
	switch {
	case !s.deadline.IsZero() && !now.Before(s.deadline):
		return 0, 0, nil, os.ErrDeadlineExceeded
	case now.Before(s.due):
		return 0, s.due.Sub(now), s.moved, nil
	case len(s.left) == 0:
		s.over.Store(true)
		if s.reset {
			return 0, 0, nil, syscall.ECONNRESET
		}
		return 0, 0, nil, io.EOF
	}
	n = copy(p[:min(len(p), s.piece)], s.left)
	s.left = s.left[n:]
	if s.piece -= n; s.piece == 0 {
		s.due = time.Time{}
	}
	return n, 0, nil, nil
}

// beginPiece begins the next piece, perhaps after a pause.
func (s *script) beginPiece() {
	s.piece, s.due = len(s.left), time.Now()
	if len(s.pieces) == 0 {
		return
	}
	p := s.pieces[s.pieceOf%len(s.pieces)]
	s.pieceOf++
	if n := int(p & 0x7f); n > 0 {
		s.piece = min(n, len(s.left))
	}
	if p > 0x7f {
		s.due = s.due.Add(pauses)
	}
}

// Write keeps the written bytes.
func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// Close ends the connection, once.
func (s *script) Close() error {
	err := errors.New("closed twice")
	s.once.Do(func() { close(s.closed); err = nil })
	return err
}

// LocalAddr returns an address of no meaning.
func (s *script) LocalAddr() net.Addr { return &net.IPAddr{} }

// RemoteAddr returns an address of no meaning.
func (s *script) RemoteAddr() net.Addr { return &net.IPAddr{} }

// SetDeadline is SetReadDeadline.
func (s *script) SetDeadline(by time.Time) error { return s.SetReadDeadline(by) }

// SetReadDeadline bounds pauses.
func (s *script) SetReadDeadline(by time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = by
	close(s.moved)
	s.moved = make(chan struct{})
	return nil
}

// SetWriteDeadline does nothing.
func (s *script) SetWriteDeadline(time.Time) error { return nil }
