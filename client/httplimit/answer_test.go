package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// decides always says the same.
type decides client.Decision

func (d decides) Do(context.Context, client.Call) (client.Decision, error) {
	return client.Decision(d), nil
}

// TestSecondsAreRoundedUp, so that nobody comes back too early.
func TestSecondsAreRoundedUp(t *testing.T) {
	d := client.Decision{Limit: 1e15, ResetAfter: 1001 * time.Millisecond, RetryAfter: time.Millisecond}
	d.Limits = []client.LimitDecision{{Name: "a", Limit: 1e15, Window: 1500 * time.Millisecond}, {Name: "b", Remaining: 7}}
	w := httptest.NewRecorder()
	httplimit.New(decides(d), nil).Policy("api")(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	h := w.Header()
	for name, want := range map[string]string{
		"Retry-After": "1", "X-RateLimit-Reset": "2", "X-RateLimit-Limit": "1000000000000000",
		"RateLimit-Policy": `"a";q=999999999999999;w=2, "b";q=0;w=0`, "RateLimit": `"a";r=0;t=0, "b";r=7;t=0`,
	} {
		if h.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
}
