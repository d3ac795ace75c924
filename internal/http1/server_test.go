package http1_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestConversations holds that net/http and http1 answer the same, at the same times.
func TestConversations(t *testing.T) {
	long := strings.Repeat("long ", 20_000)
	for name, sent := range map[string]string{
		"plain":                 post("hello"),
		"no body":               post(""),
		"twice":                 post("one") + post("two"),
		"lines between":         post("one") + "\r\n" + post("two") + "\n\r\n" + post("three"),
		"lines at the end":      post("one") + "\r\n\r\n",
		"many lines between":    post("one") + "\r\n\r\n\r\n" + post("two"),
		"a line first":          "\r\n" + post("one"),
		"a line and a method":   post("one") + "\r\nGET /echo HTTP/1.1\r\nHost: test\r\n\r\n",
		"pipelined past memory": strings.Repeat(post(strings.Repeat("x", 1000)), 10),
		"a long body":           post(long) + post("after"),
		"a method":              "GET /echo HTTP/1.1\r\nHost: test\r\n\r\n" + post("after"),
		"a query":               "POST /echo?a=b HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx" + post("after"),
		"an escape":             "POST /ec%68o HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx" + post("after"),
		"an absolute target":    "POST http://other/echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx" + post("after"),
		"two slashes":           "POST //echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.0":              "POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
		"no version":            "POST /echo\r\n\r\n",
		"no carriage return":    "POST /echo HTTP/1.1\nHost: test\nContent-Length: 1\n\nx" + post("after"),
		"no return in a line":   "POST /echo HTTP/1.1\r\nHost: test\nContent-Length: 1\r\n\r\nx" + post("after"),
		"no return at the end":  "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\nx" + post("after"),
		"a blank before colon":  postWith("A : b\r\n", "x"),
		"a folded line":         postWith("A: b\r\n c\r\n", "x"),
		"no colon":              postWith("A\r\n", "x"),
		"no name":               postWith(": b\r\n", "x"),
		"a control character":   postWith("A: b\x01\r\n", "x"),
		"a byte past ASCII":     postWith("A: \xc3\xa4\r\n", "x"),
		"values":                postWith("A: b\r\na:c\r\nB:\t d \r\nC:\r\n", "x"),
		"no host":               "POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
		"an empty host":         "POST /echo HTTP/1.1\r\nHost:\r\nContent-Length: 1\r\n\r\nx" + post("after"),
		"two hosts":             postWith("Host: other\r\n", "x"),
		"a bad host":            "POST /echo HTTP/1.1\r\nHost: a b\r\nContent-Length: 1\r\n\r\nx",
		"two lengths":           postWith("Content-Length: 1\r\n", "x") + post("after"),
		"other lengths":         postWith("Content-Length: 2\r\n", "x") + post("after"),
		"a signed length":       "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: +1\r\n\r\nx",
		"a length too long":     "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999999999999999\r\n\r\nx",
		"no length":             "POST /echo HTTP/1.1\r\nHost: test\r\n\r\n" + post("after"),
		"chunks":                "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" + post("after"),
		"chunks and a length":   postWith("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
		"expect":                postWith("Expect: 100-continue\r\n", "x") + post("after"),
		"keep-alive":            postWith("Connection: Keep-Alive\r\n", "x") + post("after"),
		"close":                 postWith("Connection: close\r\n", "x") + post("after"),
		"upgrade":               postWith("Connection: upgrade\r\nUpgrade: h2c\r\n", "x") + post("after"),
		"a connection's header": postWith("Connection: a\r\nA: b\r\n", "x") + post("after"),
		"trailers":              postWith("Trailer: A\r\n", "x") + post("after"),
		"pragma":                postWith("Pragma: no-cache\r\n", "x") + post("after"),
		"many lines":            postWith(strings.Repeat("A: b\r\n", 40), "x") + post("after"),
		"a long line":           postWith("A: "+strings.Repeat("b", 6000)+"\r\n", "x") + post("after"),
		"an endless head":       "POST /echo HTTP/1.1\r\nHost: " + strings.Repeat("b", 20_000),
		"a head cut short":      "POST /echo HTTP/1.1\r\nHost: te",
		"a body cut short":      "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhel",
		"nothing":               "",
		"no HTTP":               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"not read":              "POST /deaf HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n" + long + post("after"),
		"much not read":         "POST /deaf HTTP/1.1\r\nHost: test\r\nContent-Length: 500000\r\n\r\n" + strings.Repeat(long, 5) + post("after"),
		"read in part":          "POST /part HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello" + post("after"),
		"a closing handler":     "POST /close HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx" + post("after"),
		"no content":            "POST /204 HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"not found":             "POST /404 HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"no name of a status":   "POST /499 HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"kinds of answers":      "POST /kinds HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"a long answer":         "POST /long HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"parts":                 "POST /flush HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"parts of no content":   "POST /flush/204 HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"parts of known length": "POST /flush/length HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"no parts":              "POST /flush/nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"parts and an end":      "POST /flush/close HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"parts and a panic":     "POST /flush/panic HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
		"a panic":               "POST /panic HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" + post("after"),
	} {
		t.Run(name, func(t *testing.T) {
			want := converse(t, newServer(handle), sent)
			if got := converse(t, &http1.Server{Server: newServer(handle)}, sent); got != want {
				t.Errorf("http1 answers\n%.1000s\nnet/http\n%.1000s", got, want)
			}
		})
	}
}

// newServer returns a server that logs nothing.
func newServer(handler http.HandlerFunc) *http.Server {
	return &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
}

// handle describes the request, and answers in several ways.
func handle(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	switch r.URL.Path {
	case "/deaf":
		h.Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "not listening")
	case "/part":
		_, _ = io.CopyN(w, r.Body, 2)
	case "/close":
		h.Set("Connection", "close")
		_, _ = io.WriteString(w, "and that was it")
	case "/204", "/404", "/499":
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(code)
		_, err := io.WriteString(w, "body")
		h.Set("Late", fmt.Sprint(err))
	case "/kinds":
		h["Twice"] = []string{"a", "b"}
		h.Set("Lines", "a\r\nInjected: b")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "<html>")
		_, _ = io.WriteString(w, "more")
	case "/long":
		text := strings.Repeat("answer ", 10_000)
		h.Set("Content-Length", itoa(len(text)))
		_, _ = io.WriteString(w, text)
		if _, err := io.WriteString(w, "more than that"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	case "/flush", "/flush/204", "/flush/length", "/flush/nothing", "/flush/close", "/flush/panic":
		flush(w, r.URL.Path)
	case "/panic":
		_, _ = io.WriteString(w, "half an answer")
		panic(http.ErrAbortHandler)
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprintf(w, "%s %q %s %s %d %q %q\n%q %q %v", r.Method, r.URL, r.RequestURI, r.Proto, r.ContentLength, r.Host,
			r.TransferEncoding, r.Header, r.Trailer, r.Close)
		_, _ = fmt.Fprintf(w, "\n%d: %.20q", len(body), body)
	}
}

// flush answers in parts.
func flush(w http.ResponseWriter, how string) {
	const part = "part "
	switch how {
	case "/flush/204":
		w.WriteHeader(http.StatusNoContent)
	case "/flush/length":
		w.Header().Set("Content-Length", itoa(3*len(part)))
	case "/flush/close":
		w.Header().Set("Connection", "close")
	}
	for range 3 {
		if how != "/flush/nothing" {
			_, _ = io.WriteString(w, part)
		}
		w.(http.Flusher).Flush()
	}
	switch how {
	case "/flush/panic":
		panic(http.ErrAbortHandler)
	case "/flush/close":
		_, _ = io.WriteString(w, "and that was it")
	}
}

// converse sends all to a new server, and returns its answers, with the lines of their heads in order.
func converse(t *testing.T, s server, sent string) string {
	t.Helper()
	listener := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	defer ended(t, s, served)
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		_, _ = io.WriteString(conn, sent) // it fails if the server has closed the connection
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	return inOrder(got)
}

// inOrder returns answers with the lines of each head in order, and without their dates.
func inOrder(answers []byte) string {
	var all strings.Builder
	for head, rest := []byte(nil), answers; len(rest) > 0; {
		var more bool
		if head, rest, more = bytes.Cut(rest, []byte("\r\n\r\n")); !more {
			all.Write(head)
			break
		}
		lines := strings.Split(string(head), "\r\n")
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Date: ") })
		slices.Sort(lines[1:])
		all.WriteString(strings.Join(lines, "\n") + "\n\n")
		next := bytes.Index(rest, []byte("HTTP/1.1 "))
		if next < 0 {
			next = len(rest)
		}
		all.Write(rest[:next])
		rest = rest[next:]
	}
	return strings.ReplaceAll(all.String(), strings.Repeat("answer ", 1000), "(a thousand answers)")
}

// TestWhoAnswers holds which requests http1 answers itself. Those of net/http have an http.Hijacker.
func TestWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, fast, func(w http.ResponseWriter, _ *http.Request) {
			_, slow := w.(http.Hijacker)
			_, _ = fmt.Fprint(w, slow)
		})
		c := f.dial()
		for range 3 {
			c.say(postWith("Connection: keep-alive\r\nX-Other: a\r\n", ""))
			c.wantAnswer("false")
		}
		c.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
		c.wantAnswer("true")
		c.say(post(""))
		c.wantAnswer("true") // and so on
	})
}

// TestStates holds that states of connections are reported as by net/http. A connection that is handed over is new again.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, fast, echo)
		c := f.dial()
		for range 2 {
			c.say(post("a"))
			c.wantAnswer("a")
			synctest.Wait()
		}
		c.say("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\na")
		c.wantAnswer("a")
		synctest.Wait()
		_ = c.Close()
		synctest.Wait()
		if got, want := f.noted(), "new active idle active idle new active idle closed"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestOneRequestLeavesNothing holds that the next request of a connection has nothing of the one before.
func TestOneRequestLeavesNothing(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 0 {
				w.Header().Set("Left", "over")
			}
			_, _ = fmt.Fprintf(w, "%s %s %q %d", r.URL.Path, r.Host, r.Header, r.ContentLength)
			r.Header.Set("Left", "over")
		})
		c := f.dial()
		c.say("POST /a HTTP/1.1\r\nHost: one\r\nA: 1\r\nA: 2\r\nB: 3\r\nContent-Length: 1\r\n\r\nx")
		c.wantAnswer(`/a one map["A":["1" "2"] "B":["3"] "Content-Length":["1"]] 1`)
		c.say("POST /b HTTP/1.1\r\nHost: two\r\nB: 3\r\nContent-Length: 0\r\n\r\n")
		res, body := c.hear()
		if want := `/b two map["B":["3"] "Content-Length":["0"]] 0`; body != want || res.Header.Get("Left") != "" {
			t.Errorf("%s %q, want %s", body, res.Header, want)
		}
		c.say("POST /b HTTP/1.1\r\nHost: two\r\nContent-Length: 0\r\nB: 4\r\n\r\n")
		c.wantAnswer(`/b two map["B":["4"] "Content-Length":["0"]] 0`)
	})
}

// flaky is a listener that fails now and then.
type flaky struct {
	*pipes
	failures atomic.Int32
	err      error
}

// Accept fails at first.
func (f *flaky) Accept() (net.Conn, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, f.err
	}
	return f.pipes.Accept()
}

// TestListenersErrors holds that errors of a listener are handled as by net/http, which goes on after a temporary one.
func TestListenersErrors(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		l := &flaky{pipes: newPipes(), err: &net.DNSError{IsTemporary: true}}
		l.failures.Store(3)
		s := by(newServer(echo))
		served := make(chan error)
		go func() { served <- s.Serve(l) }()
		c := (&front{t: t, listener: l.pipes}).dial()
		c.say(post("after all"))
		c.wantAnswer("after all")
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		broken := &flaky{pipes: newPipes(), err: io.ErrNoProgress}
		broken.failures.Store(1 << 30)
		if err := by(new(http.Server)).Serve(broken); !errors.Is(err, io.ErrNoProgress) {
			t.Error(err)
		}
	})
}
