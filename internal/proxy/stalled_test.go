package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// stalled is the time without progress in these tests.
const stalled = 200 * time.Millisecond

func impatient(o *proxy.Options) { o.Stalled = stalled }

// outlast waits for longer than stalled, and reports whether done is still open.
func outlast(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	case <-time.After(4 * stalled):
		return true
	}
}

// TestAClientThatSendsHalfABody holds that a client that sends half a body is cut off, and counts.
func TestAClientThatSendsHalfABody(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two, count: served}]}", func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}, impatient)
	_, answers := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 408 ") || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	f.wait()
	f.mustHaveUsed(1, "two", here)
}

// TestABodyThatNobodyReads holds that a request that is denied, or that no application takes, ends before its body
// arrives, long before the bound of a body that is read.
func TestABodyThatNobodyReads(t *testing.T) {
	const routes = `
- {path: /spent, limits: [{policy: two}]}
- {path: /long, limits: [{policy: two}, {policy: other}, {policy: objects}, {policy: bytes}, {policy: open}]} # a denial of 2 KiB and more
`
	f := newFront(t, routes, hello)
	for range 2 {
		f.mustBe(200, "GET", "/spent", "")
	}
	if _, body := f.send(f.request("GET", "/long", "")); len(body) <= 2<<10 {
		t.Errorf("a denial of %d bytes", len(body))
	}
	f.app.Close()
	for path, status := range map[string]string{"/spent": " 429 ", "/long": " 429 ", "/": " ", "/./": " 400 "} { // of /, 502 or 408
		_, answers := f.dial("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
		whole, err := io.ReadAll(answers) // until the connection is closed
		if line, _, _ := strings.Cut(string(whole), "\n"); !strings.Contains(line, status) || err != nil {
			t.Errorf("%s: %q, %v", path, line, err)
		}
		f.wait()
	}
}

// TestAClientThatTakesNothingIn holds that a client that does not read its answer is cut off.
func TestAClientThatTakesNothingIn(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}, impatient)
	f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := f.wait(); got != "/ OK" {
		t.Errorf("%q", got)
	}
}

// TestAnApplicationMayThink holds that an application may take longer than a client may be silent.
func TestAnApplicationMayThink(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !outlast(r.Context().Done()) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, impatient)
	f.mustBe(200, "POST", "/", "body")
	f.mustBe(200, "GET", "/", "")
}

// TestALongAnswer holds that an answer may take any time while parts of it pass.
func TestALongAnswer(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			outlast(nil)
		}
	}, impatient)
	if res, body := f.send(f.request("GET", "/", "")); res.StatusCode != 200 || body != "partpartpart" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	transport := http2Transport()
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(f.request("GET", "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "partpartpart" || err != nil {
		t.Errorf("by HTTP/2: %q, %v", body, err)
	}
}

// TestAConnectionThatWasIdle holds that an idle connection serves its next request like its first.
func TestAConnectionThatWasIdle(t *testing.T) {
	f := newFront(t, byTenant, hello, impatient)
	conn, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	mustAnswer(t, answers, 200)
	outlast(nil)
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 100 ") || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "body"); err != nil {
		t.Fatal(err)
	}
	mustAnswer(t, answers, 200)
}

func mustAnswer(t *testing.T, answers *bufio.Reader, status int) {
	t.Helper()
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); res.StatusCode != status || err != nil {
		t.Errorf("%d, want %d, %v", res.StatusCode, status, err)
	}
}

// TestAnswersOfKnownLength holds that answers of known length are passed on as they come.
func TestAnswersOfKnownLength(t *testing.T) {
	read := make(chan struct{})
	f := newFront(t, byTenant, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "11")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "second")
	})
	res, err := http.DefaultClient.Do(f.request("GET", "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	close(read)
	if rest, err := io.ReadAll(res.Body); string(rest) != "second" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}
