package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestRequestBytes holds that bytes of a request with a Content-Length are charged before the application gets it.
func TestRequestBytes(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: bytes, charge: request-bytes}]}", hello)
	f.mustBe(200, "POST", "/", strings.Repeat("x", 60))
	f.mustHaveUsed(60, "bytes", here)
	f.mustBe(429, "POST", "/", strings.Repeat("x", 41))
	f.mustHaveUsed(60, "bytes", here)
	f.mustBe(413, "POST", "/", strings.Repeat("x", 101)) // it never fits
	f.mustBe(200, "POST", "/", strings.Repeat("x", 40))
	f.mustBe(200, "GET", "/", "") // nothing is sent
	f.mustBe(429, "POST", "/", "x")
}

// TestRequestBytesOfUnknownLength holds that bytes are counted as they arrive, and the next request is denied.
func TestRequestBytesOfUnknownLength(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: bytes, charge: request-bytes}]}", hello)
	for _, want := range []int{200, 429} {
		r := f.request("POST", "/", "")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 150))), -1
		if res, body := f.send(r); res.StatusCode != want || want == 200 && len(body) < 150 {
			t.Errorf("%d %s, want %d", res.StatusCode, body, want)
		}
	}
	f.mustHaveUsed(150, "bytes", here)
}

// TestResponseBytes holds that bytes of an answer are charged after it, and the next request is denied.
func TestResponseBytes(t *testing.T) {
	const routes = "- {path: /, limits: [{policy: bytes, charge: response-bytes}, {policy: two}]}"
	f := newFront(t, routes, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 150))
	})
	if res, body := f.send(f.request("GET", "/", "")); res.StatusCode != 200 || len(body) != 150 {
		t.Errorf("%d, %d bytes", res.StatusCode, len(body))
	}
	f.mustHaveUsed(150, "bytes", here)
	res, body := f.send(f.request("GET", "/", ""))
	if res.StatusCode != 429 || !strings.Contains(body, `"policy":"bytes"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	f.mustHaveUsed(1, "two", here) // the denied request took nothing
}

// TestWhatAClientDidNotTakeIn holds that bytes that a client did not read are not charged.
func TestWhatAClientDidNotTakeIn(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: bytes, charge: response-bytes}]}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "ten bytes.")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	conn, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	f.wait()
	f.mustHaveUsed(10, "bytes", here)
}

// TestReportedObjects holds that reported units are charged after the answer, and the next request is denied.
func TestReportedObjects(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: objects, charge: reported}]}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Cost", r.URL.Query().Get("n"))
	})
	for _, c := range []struct {
		n    string
		used int64
	}{{"7", 7}, {"", 7}, {"0", 7}, {"many", 7}, {"-3", 7}, {"9", 16}} {
		res := f.mustBe(200, "GET", "/?n="+c.n, "")
		if _, there := res.Header["X-Ratelimit-Cost"]; there {
			t.Errorf("%s: the client sees it", c.n)
		}
		f.mustHaveUsed(c.used, "objects", here)
	}
	f.mustBe(429, "GET", "/", "")
	if !strings.Contains(f.log.String(), "reports a value that is not a number") {
		t.Errorf("nothing in the log:\n%s", f.log)
	}
}

// TestAnApplicationThatDiesHalfWay holds that the sent bytes of an answer that breaks off are charged, and that its
// client can see that it is not complete.
func TestAnApplicationThatDiesHalfWay(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two, count: served}, {policy: bytes, charge: response-bytes}]}",
		func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ten bytes.")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
	_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "ten bytes." || err == nil {
		t.Errorf("%q, %v", body, err)
	}
	f.wait()
	f.mustHaveUsed(1, "two", here)
	f.mustHaveUsed(10, "bytes", here)
}
