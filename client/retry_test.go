package client_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// failure is an answer in the service's place.
type failure func(*service, http.ResponseWriter, *http.Request)

// failing has the first requests fail as fail says, and a client that tries again.
func failing(t *testing.T, times int64, opts client.Options, fail failure) (*service, *client.Client) {
	s := newService(t)
	var n atomic.Int64
	s.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if n.Add(1) > times {
			return false
		}
		fail(s, w, r)
		return true
	}
	return s, s.inMemory(&opts)
}

// lost answers nothing, after the call was decided.
func lost(s *service, _ http.ResponseWriter, r *http.Request) {
	s.answer(discard{}, r)
	panic(http.ErrAbortHandler)
}

// discard is an answer that gets lost.
type discard struct{}

func (discard) Header() http.Header         { return make(http.Header) }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// busy answers 503 as the service does.
func busy(_ *service, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"status":503,"detail":"Busy.","recorded":"no"}`))
}

// turnedAway answers as the service does to a connection too many.
func turnedAway(_ *service, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// TestALostAnswerIsCountedOnce: the second try has the key of the first.
func TestALostAnswerIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 2, client.Options{Retries: 2}, lost)
		d, err := c.Take(t.Context(), one("api", "x"))
		if err != nil || !d.Allowed || !d.Replayed || d.Used != 1 || s.used("x") != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		saw := s.requests()
		if len(saw) != 3 || len(saw[0].keys) != 1 || saw[0].keys[0] == "" || saw[2].keys[0] != saw[0].keys[0] {
			t.Errorf("%+v", saw)
		}
	})
}

// TestAResetIsRepeated, as it can be.
func TestAResetIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 1, client.Options{Retries: 1}, lost)
		if err := c.Reset(t.Context(), "api", "x"); err != nil || len(s.requests()) != 2 {
			t.Errorf("%v after %d requests", err, len(s.requests()))
		}
	})
}

// TestALostAnswerOfABatch tries all of its calls again, each with its key.
func TestALostAnswerOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 1, client.Options{Retries: 1}, lost)
		call := client.Call{Op: client.OpRecord, Demands: []client.Demand{one("api", "x")}}
		check := client.Call{Op: client.OpCheck, Demands: []client.Demand{one("api", "x")}}
		results, err := c.Batch(t.Context(), []client.Call{call, check, call})
		if err != nil || results[0].Err != nil || results[2].Err != nil || s.used("x") != 2 {
			t.Errorf("%+v, %v", results, err)
		}
		if saw := s.requests(); len(saw) != 2 || saw[0].keys[1] != "" || saw[0].keys[0] != saw[1].keys[0] || saw[0].keys[0] == saw[0].keys[2] {
			t.Errorf("%+v", saw)
		}
	})
}

// TestCallsThatTravelledTogetherTryAgain shares the retry too.
func TestCallsThatTravelledTogetherTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 2, client.Options{Retries: 3, Concurrency: 1}, lost)
		mustAllow(t, ask(t.Context(), c, names(20)...))
		for _, name := range names(20) {
			if n := s.used(name); n != 1 {
				t.Errorf("%s was counted %d times", name, n)
			}
		}
	})
}

// TestA503WaitsAsLongAsItSays, and longer by chance.
func TestA503WaitsAsLongAsItSays(t *testing.T) {
	for name, fail := range map[string]failure{"busy": busy, "turned away": turnedAway} {
		synctest.Test(t, func(t *testing.T) {
			s, c := failing(t, 1, client.Options{Retries: 1, Timeout: 3 * time.Second}, fail)
			began := time.Now()
			d, err := c.Take(t.Context(), one("api", "x"))
			if took := time.Since(began); err != nil || !d.Allowed || took < time.Second || took > 1500*time.Millisecond || s.used("x") != 1 {
				t.Errorf("%s: %+v, %v after %v", name, d, err, took)
			}
			if err := c.Reset(t.Context(), "api", "x"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResultsThatAreBusy are of a batch whose request was answered: each call waits a second
// and is made once more, and nothing of the first answer is left.
func TestResultsThatAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 1, client.Options{Retries: 1}, func(_ *service, w http.ResponseWriter, _ *http.Request) {
			const busy = `{"type":"about:blank","title":"Busy","status":503,"detail":"Busy.","recorded":"no","degraded":true}`
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"results":[` + busy + "," + busy + "]}"))
		})
		call := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}}
		began := time.Now()
		results, err := c.Batch(t.Context(), []client.Call{call, call})
		if took := time.Since(began); err != nil || took < time.Second || len(s.requests()) != 2 {
			t.Errorf("%v after %v", err, took)
		}
		for _, r := range results {
			if r.Err != nil || !r.Decision.Allowed || r.Decision.Degraded || r.Decision.Recorded != "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestTriesAreBounded by number and by time.
func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 100, client.Options{Retries: 2, MaxFailures: 100}, lost)
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
		if n := len(s.requests()); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 100, client.Options{Retries: 100, Timeout: 900 * time.Millisecond}, busy)
		began := time.Now()
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
		if took := time.Since(began); took != 0 || len(s.requests()) != 1 {
			t.Errorf("%d requests within %v: its time is over before a second", len(s.requests()), took)
		}
	})
}

// TestAnEarlierTryMayCountYet: that a later one certainly did not, does not tell of it.
func TestAnEarlierTryMayCountYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		_, c := failing(t, 2, client.Options{Retries: 1}, func(s *service, w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				lost(s, w, r)
			}
			busy(s, w, r)
		})
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
	})
}

// TestAWaitForAnotherTryEnds with the context.
func TestAWaitForAnotherTryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := failing(t, 100, client.Options{Retries: 5, Timeout: time.Minute}, busy)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.Take(ctx, one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWhatCouldCountTwiceIsNotRepeated has a hold, which no key makes safe, and a refund: one
// that follows a lost answer would find nothing.
func TestWhatCouldCountTwiceIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 2, client.Options{Retries: 5}, lost)
		_, err := c.Reserve(t.Context(), time.Second, one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
		mustBe(t, c.Refund(t.Context(), "x"), client.ErrUnavailable, client.RecordedUnknown)
		if n := len(s.requests()); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 1, client.Options{Retries: 5}, busy)
		if d, err := c.Reserve(t.Context(), time.Second, one("api", "x")); err != nil || !d.Allowed || len(s.requests()) != 2 {
			t.Errorf("%+v, %v after %d requests", d, err, len(s.requests()))
		}
	})
}

// TestWithoutRetriesThereIsNoKey, as keys cost the service.
func TestWithoutRetriesThereIsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := failing(t, 1, client.Options{}, lost)
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedUnknown)
		if saw := s.requests(); len(saw) != 1 || saw[0].keys != nil || s.used("x") != 1 {
			t.Errorf("%+v", saw)
		}
	})
}
