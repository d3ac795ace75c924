package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// FuzzConnection has http1 and net/http serve a connection by which the same bytes come, in
// pieces of any lengths. The handler must be asked the same, and the client must be told the
// same.
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
		for _, piece := range []uint8{0, 1, 7} {
			f.Add([]byte(seed), piece)
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		if len(sent) > 16<<10 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			plain := func(h http.Handler) *http.Server {
				return &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
			}
			got := serveScript(t, func(h http.Handler) server { return &http1.Server{Server: plain(h)} }, sent, int(piece))
			want := serveScript(t, func(h http.Handler) server { return plain(h) }, sent, int(piece))
			if !slices.EqualFunc(got.asked, want.asked, asks.same) {
				t.Errorf("%q: http1's handler was asked\n%+v\nnet/http's\n%+v", sent, got.asked, want.asked)
			}
			if one, other := got.told(t), want.told(t); !slices.EqualFunc(unfinished(one, len(other)), other, tells.same) {
				t.Errorf("%q: http1 answers\n%+v\nnet/http\n%+v", sent, one, other)
			}
		})
	})
}

// unfinished returns told without a 400 that comes after n answers. Of less than four bytes and
// the end after an earlier request, net/http says nothing; where http1 hands them to it, they
// are a first request.
func unfinished(told []tells, n int) []tells {
	if len(told) == n+1 && n > 0 && told[n].status == http.StatusBadRequest && told[n].last {
		return told[:n]
	}
	return told
}

// asks is what a handler is asked.
type asks struct {
	head   string
	header http.Header
	body   string
	failed bool // reading the body
}

func (a asks) same(b asks) bool { return reflect.DeepEqual(a, b) }

// tells is an answer.
type tells struct {
	status int
	header http.Header
	body   string
	last   bool
}

// same reports whether a tells what b does. It may say that it is the last where b does not:
// http1 closes what a body was cut short on.
func (a tells) same(b tells) bool {
	a.last = a.last && b.last
	return reflect.DeepEqual(a, b)
}

// talk is what came of a connection.
type talk struct {
	asked []asks
	out   []byte
}

// serveScript has a server serve one connection by which sent comes, so many bytes at a time;
// 0: all at once.
func serveScript(t *testing.T, newServer func(http.Handler) server, sent []byte, piece int) (of talk) {
	t.Helper()
	conn := &script{left: sent, piece: piece, closed: make(chan struct{})}
	s := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		of.asked = append(of.asked, asks{
			fmt.Sprintf("%s %s %v %s %s %d %q %v %v", r.Method, r.RequestURI, r.URL, r.Proto, r.Host, r.ContentLength,
				r.TransferEncoding, r.Close, r.Trailer),
			r.Header.Clone(), string(body), err != nil,
		})
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

// answerAnyhow answers in one of the ways that there are, by the body's length.
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

// told returns the answers of which out is made.
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

// script is a connection by which all has come already, and then its end.
type script struct {
	mu     sync.Mutex
	left   []byte
	piece  int
	out    bytes.Buffer
	once   sync.Once
	closed chan struct{}
}

// Read returns the next piece.
func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	if s.piece > 0 {
		p = p[:min(len(p), s.piece)]
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// Write keeps what is written.
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

// LocalAddr is no address.
func (s *script) LocalAddr() net.Addr { return &net.IPAddr{} }

// RemoteAddr is no address.
func (s *script) RemoteAddr() net.Addr { return &net.IPAddr{} }

// SetDeadline does nothing: nobody waits.
func (s *script) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (s *script) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (s *script) SetWriteDeadline(time.Time) error { return nil }
