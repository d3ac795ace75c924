package goclient_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
)

// TestLostAnswersAreCountedOnce loses the first answer of a real service to a call, and to a batch: it replays them to the keys
// that the client made.
func TestLostAnswersAreCountedOnce(t *testing.T) {
	s := newService(t)
	var lose atomic.Bool
	s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		if !lose.Swap(false) {
			return false
		}
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	c := s.inMemory(&client.Options{Retries: 1})
	lose.Store(true)
	d, err := c.Take(t.Context(), one("api", "x"))
	if err != nil || !d.Allowed || !d.Replayed || d.Used != 1 || s.used("x") != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	lose.Store(true)
	call := client.Call{Op: client.OpRecord, Demands: []client.Demand{one("api", "x")}}
	results, err := c.Batch(t.Context(), []client.Call{call, call})
	if err != nil || !results[0].Decision.Replayed || !results[1].Decision.Replayed || s.used("x") != 3 {
		t.Errorf("%+v, %v", results, err)
	}
	if n := len(s.requests()); n != 4 {
		t.Errorf("%d requests", n)
	}
}
