package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// TestRequestIDs holds that short and plain request ids are kept, and others are replaced.
func TestRequestIDs(t *testing.T) {
	for sent, kept := range map[string]bool{
		"0192b6c1-7e4e-7b1d-9f5e-8c0d3f1a2b3c": true,
		"a.b_c-D":                              true,
		strings.Repeat("a", 128):               true,
		strings.Repeat("a", 129):               false,
		"+4915112345678":                       false,
		"4915112345678":                        false,
		"0151-123.456_78":                      false,
		"tel-4915112345678-a":                  false,
		"203.0.113.7":                          false,
		"10.0.0.1":                             false,
		"2001:db8::1":                          false,
		"ip-203-0-113-7.example.net":           false,
		"123456":                               false,
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           true,
		"4bf92f3577b34da6a3ce929d0e0e4736":     true,
		"12345678901234567890123456789012":     false,
		"00000000000000000004915112345678":     false, // a number that was padded
		"00000000-0000-4000-8000-491511234567": false,
		"00000000000004915112345678":           false,
		"order-123456":                         true,
		"who@example.org":                      false,
		"a b":                                  false,
		"":                                     false,
	} {
		f := newFront(t, nil)
		got := f.do(http.MethodGet, "/healthz", "", "X-Request-ID", sent).Header.Get("X-Request-ID")
		if (got == sent) != kept || !isRequestID(got) {
			t.Errorf("%q became %q", sent, got)
		}
		if !strings.Contains(f.log.String(), "request_id="+got) {
			t.Errorf("the log does not have %q: %s", got, f.log)
		}
	}
	first, second := newFront(t, nil), newFront(t, nil)
	a, b := first.do("GET", "/healthz", "", "X-Request-ID", ""), second.do("GET", "/healthz", "", "X-Request-ID", "")
	if a.Header.Get("X-Request-ID") == b.Header.Get("X-Request-ID") {
		t.Error("two requests have the same id")
	}
}

// TestRequestsAreLoggedAndObserved holds that the route and the status of every request are logged and observed, and
// never its path.
func TestRequestsAreLoggedAndObserved(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		want               string // observed
		level              string
	}{
		{"POST", "/v1/take", one, "/v1/take 200", "DEBUG"},
		{"POST", "/v1/take", `{"policy":"closed","identifier":"a"}`, "/v1/take 429", "DEBUG"},
		{"POST", "/v1/take", `{`, "/v1/take 400", "INFO"},
		{"GET", "/v1/policies/secret", "", "/v1/policies/{name} 404", "INFO"},
		{"GET", "/secret", "", "unknown 404", "INFO"},
		{"SECRET", "/v1/take", "", "unknown 405", "INFO"},
		{"HEAD", "/healthz", "", "/healthz 200", "DEBUG"},
		{"GET", "/readyz", "", "/readyz 503", "WARN"},
	} {
		var observed []string
		f := newFront(t, &Options{
			Ready: func(context.Context) error { return errors.New("no host answers") },
			Observe: func(route string, status int, _ time.Duration, _ string) {
				observed = append(observed, route+" "+strconv.Itoa(status))
			},
		}, smsSend, closed)
		f.do(c.method, c.path, c.body)
		if len(observed) != 1 || observed[0] != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, observed, c.want)
		}
		log := f.log.String()
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "level="+c.level+" msg=request") {
			t.Errorf("%s %s: want one line at %s: %s", c.method, c.path, c.level, log)
		}
		if strings.Contains(strings.ToLower(log), "secret") || strings.Contains(log, "49151") {
			t.Errorf("the log tells what was sent: %s", log)
		}
	}
}

// TestReadyWithWarnings holds that an instance with warnings is ready.
func TestReadyWithWarnings(t *testing.T) {
	var warnings []string
	f := newFront(t, &Options{Warnings: func() []string { return warnings }})
	for _, want := range []string{`{"status":"ready"}`, `{"status":"ready","warnings":["the disk is full"]}`} {
		res := f.do(http.MethodGet, "/readyz", "")
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != want {
			t.Errorf("%d %s, want %s, %v", res.StatusCode, body, want, err)
		}
		warnings = []string{"the disk is full"}
	}
}

// TestNotReady holds that only the log has the reason.
func TestNotReady(t *testing.T) {
	f := newFront(t, &Options{Ready: func(context.Context) error { return errors.New("host-7 is on fire") }})
	res := f.do(http.MethodGet, "/readyz", "")
	p := readProblem(t, res)
	if p.Status != http.StatusServiceUnavailable || strings.Contains(p.Detail, "host-7") || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(f.log.String(), "host-7 is on fire") {
		t.Errorf("the log does not say why: %s", f.log)
	}
}

// TestPanics holds that a panic of a handler is answered with 500. Here there is no engine.
func TestPanics(t *testing.T) {
	f := newFront(t, nil)
	f.server.engine = nil
	p := readProblem(t, f.do(http.MethodPost, "/v1/take", one))
	if p.Status != http.StatusInternalServerError || p.Recorded != "unknown" {
		t.Errorf("%+v", p)
	}
	log := f.log.String()
	if !strings.Contains(log, "panic in a handler") || !strings.Contains(log, "decide.go") || strings.Contains(log, "49151") {
		t.Errorf("%s", log)
	}
	if p := readProblem(t, f.do(http.MethodGet, "/v1/policies", "")); p.Status != http.StatusInternalServerError || p.Recorded != "" {
		t.Errorf("%+v", p)
	}
}

// TestAbortedAnswersAreCutShort holds that http.ErrAbortHandler passes, and that a handler that panics within an answer
// ends it that way.
func TestAbortedAnswersAreCutShort(t *testing.T) {
	for _, cause := range []any{http.ErrAbortHandler, "in the middle"} {
		metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			panic(cause)
		})
		f := newFront(t, &Options{Metrics: metrics})
		func() {
			defer func() {
				if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
					t.Errorf("%v became %v", cause, got)
				}
			}()
			f.do(http.MethodGet, "/metrics", "")
		}()
	}
}

// TestClientsThatHangUp holds that clients that hang up are not logged as failures of the store.
func TestClientsThatHangUp(t *testing.T) {
	var status int
	f := newFront(t, &Options{Observe: func(_ string, s int, _ time.Duration, _ string) { status = s }}, tail)
	f.store.err = errStoreDown
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/take", strings.NewReader(oneTail))
	r.Header.Set("Content-Type", "application/json")
	f.server.ServeHTTP(httptest.NewRecorder(), r)
	if status != encode.StatusClientGone || strings.Contains(f.log.String(), "WARN") {
		t.Errorf("%d, %s", status, f.log)
	}
}

// TestManyAtOnce holds that requests share no memory: run it with -race.
func TestManyAtOnce(t *testing.T) {
	f := newFront(t, nil, tail)
	f.server.opts.Logger = slog.New(slog.DiscardHandler)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := strings.Repeat(strconv.Itoa(i), 100)
			for n := range 50 {
				r := httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(`{"policy":"api","identifier":"`+id+`"}`))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				f.server.ServeHTTP(w, r)
				if want := `"used":` + strconv.Itoa(n+1) + `,`; !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s is not in %s", want, w.Body)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestHTTPServer holds that a real connection is served, and headers beyond the bound are refused.
func TestHTTPServer(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		server := NewHTTPServer(newFront(t, nil, tail).server)
		if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 {
			t.Errorf("a timeout is missing: %+v", server)
		}
		web := by(server)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- web.Serve(listener) }()
		defer func() {
			if err := web.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		for padding, want := range map[int]int{100: 200, 32 << 10: http.StatusRequestHeaderFieldsTooLarge} {
			url := "http://" + listener.Addr().String() + "/v1/take"
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(oneTail)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Padding", strings.Repeat("a", padding))
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != want {
				t.Errorf("%d bytes of header: %d, want %d: %s %v", padding, res.StatusCode, want, body, err)
			}
			_ = res.Body.Close()
		}
	})
}

// A client that sends a body that is too long to its end, and soon enough for the server to read it, reads why it was refused.
func TestBodyThatIsTooLongIsAnsweredAllTheSame(t *testing.T) {
	server := httptest.NewServer(newFront(t, nil, smsSend).server)
	t.Cleanup(server.Close)
	const soon = 100 * time.Millisecond // as long as the server waits for each part, and less than for the whole
	for until, answered := time.Now().Add(time.Minute), 0; answered < 10; {
		began := time.Now()
		status, err := sendWhole(t, server.Listener.Addr().String(), strings.Repeat(" ", 4<<20))
		switch {
		case err == nil && status == http.StatusRequestEntityTooLarge:
			answered++
		case err == nil || time.Since(began) < soon || time.Now().After(until):
			t.Fatalf("after %v: %d, %v", time.Since(began), status, err)
		}
	}
}

// sendWhole sends all of body before it reads the status of the answer.
func sendWhole(t *testing.T, address, body string) (status int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/take", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := r.Write(conn); err != nil {
		return 0, fmt.Errorf("sending: %w", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
