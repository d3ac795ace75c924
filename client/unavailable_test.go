package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// TestEveryStatus has problems of every status, as the service words them, for a call alone
// and for a batch as a whole.
func TestEveryStatus(t *testing.T) {
	for status, is := range map[int]error{
		400: client.ErrInvalid, 404: client.ErrInvalid, 405: client.ErrInvalid, 408: client.ErrInvalid, 413: client.ErrInvalid,
		415: client.ErrInvalid, 422: client.ErrInvalid, 500: client.ErrUnavailable, 503: client.ErrUnavailable,
	} {
		s := newService(t)
		s.instead = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"type":"about:blank","title":"T","status":%d,"detail":"D.","recorded":"yes"}`, status)
			return true
		}
		c := s.overHTTP(nil)
		_, alone := c.Take(t.Context(), one("api", "x"))
		call := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}}
		results, err := c.Batch(t.Context(), []client.Call{call, call})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{alone, results[0].Err, results[1].Err, c.Reset(t.Context(), "api", "x")} {
			mustBe(t, err, is, client.RecordedYes)
			want := client.Problem{Type: "about:blank", Title: "T", Status: status, Detail: "D.", Recorded: "yes", RetryAfter: 7 * time.Second}
			if p := (*client.Problem)(nil); !errors.As(err, &p) || *p != want {
				t.Errorf("%d: %+v, want %+v", status, p, want)
			}
		}
		if n := len(s.requests()); n != 3 {
			t.Errorf("%d: %d requests, without retries", status, n)
		}
	}
}

// nonsense are answers that ratelimitd does not give.
func nonsense() map[string]http.HandlerFunc {
	answers := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const json, problem = "application/json", "application/problem+json"
	return map[string]http.HandlerFunc{
		"a page":              answers(200, "text/html", "<html>needle</html>"),
		"a proxy's 502":       answers(502, "text/html", "<html>needle</html>"),
		"a proxy's 429":       answers(429, "text/plain", "needle"),
		"a 401":               answers(401, "application/json", `{"error":"needle"}`),
		"a decision as text":  answers(200, "text/plain", `{"allowed":true,"policy":"needle"}`),
		"nothing":             answers(200, json, ""),
		"no object":           answers(200, json, `["needle"]`),
		"another object":      answers(200, json, `{"needle":true}`),
		"half an object":      answers(200, json, `{"allowed":true,"policy":"needle`),
		"two objects":         answers(200, json, `{"allowed":true}{"allowed":true}`),
		"a denial of 200":     answers(200, json, `{"allowed":false}`),
		"a permission of 429": answers(429, problem, `{"allowed":true,"status":429}`),
		"a 204":               answers(204, "", ""),
		"results":             answers(200, json, `{"results":[]}`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/needle", http.StatusTemporaryRedirect)
		},
		"half of what it says": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", json)
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"allowed":true,"policy":"needle"`)
		},
		"a cut connection": func(w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		},
		"more than there is": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", json)
			w.Header().Set("Content-Length", "100000000")
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		},
	}
}

// TestNonsenseIsNoDecision: an answer that is not ratelimitd's is no decision, and no error repeats any of it, or the
// identifier.
func TestNonsenseIsNoDecision(t *testing.T) {
	for name, answer := range nonsense() {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			closed := newClient(t, server.URL, &client.Options{Timeout: patience})
			_, err := closed.Take(t.Context(), one("api", "needle"))
			mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
			call := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "needle")}}
			results, wrong := closed.Batch(t.Context(), []client.Call{call, call})
			if wrong != nil {
				t.Fatal(wrong)
			}
			mustBe(t, results[1].Err, client.ErrUnavailable, client.RecordedUnknown)
			if strings.Contains(err.Error()+results[0].Err.Error(), "needle") {
				t.Errorf("%v, %v", err, results[0].Err)
			}
			open := newClient(t, server.URL, &client.Options{OnUnavailable: client.FailOpen, Timeout: patience})
			d, err := open.Take(t.Context(), one("api", "needle"))
			if err != nil || !d.Allowed || !d.Degraded || d.Recorded != client.RecordedUnknown || d.Policy != "api" {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

// nobody is an address where nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestNobodyListens(t *testing.T) {
	url := nobody(t)
	c := newClient(t, url, nil)
	for range 20 { // the breaker opens meanwhile
		_, err := c.Take(t.Context(), one("api", "needle"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
		if strings.Contains(err.Error(), "needle") {
			t.Error(err)
		}
	}
	mustBe(t, c.Refund(t.Context(), "x"), client.ErrUnavailable, client.RecordedYes)
	mustBe(t, c.Reset(t.Context(), "api", "x"), client.ErrUnavailable, client.RecordedNo)
	open := newClient(t, url, &client.Options{OnUnavailable: client.FailOpen})
	d, err := open.Take(t.Context(), one("api", "x"), one("sms-send", "y"))
	if err != nil || !d.Allowed || !d.WouldAllow || !d.Degraded || d.Recorded != client.RecordedNo || len(d.Demands) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if d.Demands[1].Policy != "sms-send" || !d.Demands[1].Allowed || !d.Demands[1].Degraded {
		t.Errorf("%+v", d.Demands[1])
	}
}

// TestAServerThatSaysNothing accepts connections, reads, and does not answer.
func TestAServerThatSaysNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }() // until the client closes it
		}
	}()
	c := newClient(t, "http://"+l.Addr().String(), &client.Options{Timeout: 50 * time.Millisecond})
	_, err = c.Take(t.Context(), one("api", "x"))
	mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mustBe(t, c.Reset(ctx, "api", "x"), context.Canceled, client.RecordedUnknown)
}

// TestAServerThatHalfCloses answers once and closes the connection without saying so: the
// next call has a connection of its own.
func TestAServerThatHalfCloses(t *testing.T) {
	s := newService(t)
	var connections atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			serveOnce(s, conn)
			closed <- struct{}{}
		}
	}()
	c := newClient(t, "http://"+l.Addr().String(), &client.Options{Retries: 2, Timeout: patience})
	for i := range int64(5) {
		d, err := c.Take(t.Context(), one("api", "x"))
		if err != nil || d.Used != i+1 {
			t.Errorf("%+v, %v", d, err)
		}
		<-closed
	}
	if n := connections.Load(); n < 5 {
		t.Errorf("%d connections for 5 answers", n)
	}
}

// serveOnce answers one request of conn, ends its own half and reads on.
func serveOnce(s *service, conn net.Conn) {
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		_ = conn.Close()
		return
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, request)
	response := w.Result()
	response.ContentLength = int64(w.Body.Len())
	_ = response.Write(conn)
	_ = conn.(*net.TCPConn).CloseWrite()
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
}

// TestProblemsAreAnswers: a service that refuses calls is there.
func TestProblemsAreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newService(t).inMemory(nil)
		time.Sleep(time.Second)
		for range 20 {
			_, err := c.Take(t.Context(), one("nosuch", "x"))
			mustBe(t, err, client.ErrUnknownPolicy, client.RecordedNo)
		}
		if _, err := c.Take(t.Context(), one("api", "x")); err != nil {
			t.Error(err)
		}
	})
}

// TestOneAtATimeFindsOut: while one call asks whether the service is back, others fail at
// once.
func TestOneAtATimeFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		g := newGate()
		var answers atomic.Bool
		s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
			if !answers.Load() {
				panic(http.ErrAbortHandler)
			}
			g.hold(r)
			return false
		}
		c := s.inMemory(&client.Options{Concurrency: 4})
		for range 5 {
			_, err := c.Take(t.Context(), one("api", "x"))
			mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
		}
		answers.Store(true)
		time.Sleep(1100 * time.Millisecond)
		probe := ask(t.Context(), c, "x")
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
		g.open()
		mustAllow(t, probe)
		mustAllow(t, ask(t.Context(), c, "x"))
	})
}

// TestTheBreaker has a service that is gone for a while: after some failures calls fail at
// once, one in a second asks, and the first answer brings all back.
func TestTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var gone atomic.Bool
		s.instead = func(_ http.ResponseWriter, _ *http.Request) bool {
			if gone.Load() {
				panic(http.ErrAbortHandler)
			}
			return false
		}
		c := s.inMemory(&client.Options{OnUnavailable: client.FailOpen})
		take := func() client.Decision {
			d, err := c.Take(t.Context(), one("api", "x"))
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			return d
		}
		if take().Degraded {
			t.Error("degraded from the start")
		}
		gone.Store(true)
		for range 5 {
			take()
		}
		if n := len(s.requests()); n != 6 {
			t.Fatalf("%d requests", n)
		}
		take() // nothing was open yet: the service answered less than half a second ago
		time.Sleep(600 * time.Millisecond)
		for range 20 {
			if d := take(); !d.Degraded {
				t.Errorf("%+v", d)
			}
		}
		if n := len(s.requests()); n != 8 {
			t.Errorf("%d requests: the breaker is not open", n)
		}
		for range 3 { // probes
			time.Sleep(1100 * time.Millisecond)
			take()
			take()
		}
		if n := len(s.requests()); n != 11 {
			t.Errorf("%d requests: one at a time finds out", n)
		}
		gone.Store(false)
		if d := take(); !d.Degraded || d.Recorded != client.RecordedNo {
			t.Errorf("%+v", d)
		}
		time.Sleep(1100 * time.Millisecond)
		for range 3 {
			if d := take(); d.Degraded {
				t.Errorf("%+v", d)
			}
		}
	})
}

// TestWhatACallerSaysOfAContext is not said of the service, whatever the cause wraps.
func TestWhatACallerSaysOfAContext(t *testing.T) {
	elsewhere := &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"a batch": func(ctx context.Context, c *client.Client) error {
			results, err := c.Batch(ctx, []client.Call{{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}}})
			return errors.Join(err, results[0].Err)
		},
		"a refund": func(ctx context.Context, c *client.Client) error { return c.Refund(ctx, "receipt") },
		"a reset":  func(ctx context.Context, c *client.Client) error { return c.Reset(ctx, "api", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, c := held(t, client.Options{OnUnavailable: client.FailOpen})
				for range 2 * client.DefaultMaxFailures {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(200*time.Millisecond, func() { cancel(fmt.Errorf("another's work: %w", elsewhere)) })
					began, err := time.Now(), call(ctx, c)
					mustBe(t, err, context.Canceled, client.RecordedUnknown)
					if took := time.Since(began); took != 200*time.Millisecond {
						t.Errorf("it took %v: the breaker is open", took)
					}
					synctest.Wait()
				}
			})
		})
	}
}

// TestCallsInAHurry open the breaker when they go on, and not when a few come at once after a
// pause.
func TestCallsInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var stands atomic.Bool
		s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
			if stands.Load() {
				<-r.Context().Done()
			}
			return stands.Load()
		}
		c := s.inMemory(&client.Options{Concurrency: 1})
		take := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := c.Take(ctx, one("api", "x"))
			synctest.Wait()
			return err
		}
		if err := take(time.Second); err != nil {
			t.Fatal(err)
		}
		const little = 5 * time.Millisecond
		stands.Store(true)
		for range 3 {
			time.Sleep(10 * time.Second)
			for range 2 * client.DefaultMaxFailures {
				mustBe(t, take(little), context.DeadlineExceeded, client.RecordedUnknown)
			}
		}
		before := len(s.requests())
		for range 500 {
			_ = take(little)
		}
		if asked := len(s.requests()) - before; asked < 70 || asked > 130 { // for half a second
			t.Errorf("the service was asked by %d of 500 calls for which nobody had time", asked)
		}
	})
}
