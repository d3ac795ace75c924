package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

const volumes = `
policies:
  - name: up
    limits: [{name: per-hour, algorithm: fixed-window, limit: 10, window: 1h}]
  - name: down
    limits: [{name: per-hour, algorithm: fixed-window, limit: 10, window: 1h}]
  - name: rows
    limits: [{name: per-hour, algorithm: fixed-window, limit: 10, window: 1h}]
  - name: api
    limits: [{name: per-hour, algorithm: fixed-window, limit: 100, window: 1h}]
`

// echo answers a request with its body, and says that each byte of it is a row.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(w, r.Body)
	httplimit.Report(r.Context(), n)
})

// send posts text from an address of its own for each who.
func send(h http.Handler, who, text string) *http.Response {
	r := httptest.NewRequest("POST", "/", strings.NewReader(text))
	r.Header.Set("X-Api-Key", who)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// serviceAt serves policies at noon: no window ends but by the test.
func serviceAt(t *testing.T, policies string) *ratelimittest.Server {
	s := ratelimittest.New(t, policies)
	s.SetTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return s
}

func usedOf(t *testing.T, limits *client.Client, policy, who string) int64 {
	t.Helper()
	d, err := limits.Check(t.Context(), client.Demand{Policy: policy, Identifier: who})
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// TestVolumesAreChargedAfterwards lets a request pass while anything is left, whatever it
// turns out to be, and none when that is spent.
func TestVolumesAreChargedAfterwards(t *testing.T) {
	for policy, measure := range map[string]httplimit.Measure{
		"up": httplimit.RequestBytes, "down": httplimit.ResponseBytes, "rows": httplimit.Objects,
	} {
		t.Run(policy, func(t *testing.T) {
			s := serviceAt(t, volumes)
			limits := s.Client(nil)
			h := httplimit.New(limits, nil).All(
				httplimit.Use("api", httplimit.By(httplimit.APIKey())),
				httplimit.Use(policy, httplimit.By(httplimit.APIKey()), httplimit.After(measure)),
			)(echo)
			mustBe(t, "200 200 200 429 200",
				send(h, "a", "seven.."), send(h, "a", ""), send(h, "a", "seven.."), send(h, "a", "x"), send(h, "b", "x"))
			if used := usedOf(t, limits, policy, "a"); used != 14 {
				t.Errorf("%d used, want 14", used)
			}
			if used := usedOf(t, limits, "api", "a"); used != 3 { // the denied one took nothing
				t.Errorf("%d of requests used, want 3", used)
			}
			s.Advance(time.Hour)
			mustBe(t, "200", send(h, "a", "x"))
		})
	}
}

// TestDenialsByVolumeTellHowLong to wait.
func TestDenialsByVolumeTellHowLong(t *testing.T) {
	s := serviceAt(t, volumes)
	h := httplimit.New(s.Client(nil), nil).Policy("down", httplimit.After(httplimit.ResponseBytes))(echo)
	first := send(h, "", "0123456789")
	denied := send(h, "", "x")
	mustBe(t, "200 429", first, denied)
	left := [2]string{first.Header.Get("X-Ratelimit-Remaining"), denied.Header.Get("X-Ratelimit-Remaining")}
	if left != [2]string{"10", "0"} || denied.Header.Get("Retry-After") == "" {
		t.Errorf("%v, and then %v", first.Header, denied.Header)
	}
}

// TestWhatIsMeasured goes through a real server: what was sent before the handler failed,
// and by whatever way.
func TestWhatIsMeasured(t *testing.T) {
	s := serviceAt(t, strings.ReplaceAll(volumes, "limit: 10,", "limit: 1000000,"))
	limits := s.Client(nil)
	var last httplimit.Exchange
	charged := make(chan struct{}, 1)
	see := func(x *httplimit.Exchange) int64 { last = *x; charged <- struct{}{}; return x.ResponseBytes }
	handlers := map[string]http.HandlerFunc{
		"/copied": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("0123456789")) },
		"/flushed": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "01234")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "56789")
		},
		"/status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "0123456789")
		},
		"/hints": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "0123456789")
		},
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "0123456789")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"/hijacked": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.Close()
			}
		},
		"/unread": func(http.ResponseWriter, *http.Request) {},
	}
	h := httplimit.New(limits, nil).Policy("down", httplimit.By(httplimit.Path()), httplimit.After(see))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) }))
	server := httptest.NewServer(h)
	defer server.Close()
	for path, want := range map[string]httplimit.Exchange{
		"/copied": {Status: 200, ResponseBytes: 10}, "/flushed": {Status: 200, ResponseBytes: 10}, "/status": {Status: 418, ResponseBytes: 10},
		"/hints": {Status: 418, ResponseBytes: 10}, "/cut": {Status: 200, ResponseBytes: 10}, "/hijacked": {}, "/unread": {},
	} {
		res, err := http.Post(server.URL+path, "text/plain", strings.NewReader("body"))
		if err == nil {
			_, _ = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		<-charged
		if last.Status != want.Status || last.ResponseBytes != want.ResponseBytes || last.RequestBytes != 0 || last.Request.URL.Path != path {
			t.Errorf("%s: %+v, want %+v", path, last, want)
		}
	}
}

// TestReportReachesEveryLayer that measures.
func TestReportReachesEveryLayer(t *testing.T) {
	s := serviceAt(t, volumes)
	limits := s.Client(nil)
	limit := httplimit.New(limits, nil)
	by := httplimit.By(httplimit.APIKey())
	h := limit.Policy("rows", by, httplimit.After(httplimit.Objects))(limit.Policy("down", by, httplimit.After(httplimit.Objects))(echo))
	mustBe(t, "200", send(h, "a", "four"))
	if rows, down := usedOf(t, limits, "rows", "a"), usedOf(t, limits, "down", "a"); rows != 4 || down != 4 {
		t.Errorf("%d and %d, want 4 and 4", rows, down)
	}
	httplimit.Report(context.Background(), 1) // of nothing
}

// TestVolumesWhileNobodyDecides checks that these requests pass, or do not, like all others, and that lost charges are
// reported.
func TestVolumesWhileNobodyDecides(t *testing.T) {
	s := serviceAt(t, volumes)
	var log bytes.Buffer
	rule := httplimit.Use("down", httplimit.After(httplimit.ResponseBytes))
	open := httplimit.New(s.Client(nil), &httplimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}).All(rule)(echo)
	closed := httplimit.New(s.Client(nil), &httplimit.Options{FailClosed: true}).All(rule)(echo)
	s.SetGone(true)
	mustBe(t, "200 503", send(open, "", "0123456789"), send(closed, "", "x"))
	if !strings.Contains(log.String(), "units of responses are not counted") {
		t.Errorf("log: %s", log.String())
	}
	s.SetGone(false)
	mustBe(t, "200", send(open, "", "x"))
}

// TestChargedThoughTheClientIsGone counts the bytes that the client got.
func TestChargedThoughTheClientIsGone(t *testing.T) {
	s := serviceAt(t, volumes)
	limits := s.Client(nil)
	ctx, leave := context.WithCancel(t.Context())
	h := httplimit.New(limits, nil).Policy("down", httplimit.By(httplimit.Path()), httplimit.After(httplimit.ResponseBytes))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "01234"); leave() }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/big", nil))
	if used := usedOf(t, limits, "down", "/big"); used != 5 {
		t.Errorf("%d used, want 5", used)
	}
}

// TestWhoIsNoIdentifier is told so, and not let through: nothing could limit it.
func TestWhoIsNoIdentifier(t *testing.T) {
	s := serviceAt(t, `
policies:
  - name: api
    limits: [{algorithm: fixed-window, limit: 1, window: 1h}]
    normalize: e164
`)
	h := httplimit.New(s.Client(nil), nil).All(httplimit.Use("api", httplimit.Cost(1), httplimit.By(httplimit.APIKey())))(ok)
	wrong := send(h, "<anna>", "")
	mustBe(t, "400 400 200 429", wrong, send(h, "", ""), send(h, "+49 151 12345678", ""), send(h, "+4915112345678", ""))
	if text := body(t, wrong); !strings.Contains(text, "not a phone number") || strings.Contains(text, "anna") ||
		wrong.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s, %v", text, wrong.Header)
	}
}
