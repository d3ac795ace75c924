package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

const slots = `
policies:
  - {name: slots, limits: [{name: at-once, algorithm: concurrent, limit: 1, hold: 1h}]}
  - {name: api, limits: [{name: per-minute, algorithm: sliding-log, limit: 100, window: 1m}]}
`

// TestConcurrentUnitsAreReleased holds that a request has its unit while its handler runs, and not any longer: whether it
// returned, panicked or lost its client. What counts elsewhere stays.
func TestConcurrentUnitsAreReleased(t *testing.T) {
	limit := httplimit.New(ratelimittest.New(t, slots).Client(nil), nil)
	var inner http.Handler
	handlers := map[string]http.HandlerFunc{
		"returns": func(http.ResponseWriter, *http.Request) {},
		"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"streams": func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = w.Write([]byte("a part"))
				_ = http.NewResponseController(w).Flush()
			}
		},
	}
	both := limit.All(httplimit.Use("slots"), httplimit.Use("api"))
	denied := both(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a second of one passed") }))
	for name, handler := range handlers {
		inner = both(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			res := ask(denied, "GET", "/", "192.0.2.1:1")
			policy, want := res.Header.Get("RateLimit-Policy"), `"at-once";q=1;qu="concurrent-requests"`
			if res.StatusCode != 429 || !strings.Contains(policy, want) {
				t.Errorf("%s: meanwhile: %d, %s", name, res.StatusCode, policy)
			}
			handler(w, r)
		}))
		for range 2 {
			func() {
				defer func() { _ = recover() }()
				if res := ask(inner, "GET", "/", "192.0.2.1:1"); res.StatusCode != 200 {
					t.Errorf("%s: %d", name, res.StatusCode)
				}
			}()
		}
	}
	if res := ask(limit.Policy("api")(ok), "GET", "/", "192.0.2.1:1"); body(t, res) != "api 7" {
		t.Error("what counts by the minute was released, too")
	}
}
