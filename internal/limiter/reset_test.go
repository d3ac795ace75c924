package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func mustReset(t *testing.T, e *limiter.Engine) {
	t.Helper()
	if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
		t.Fatal(err)
	}
}

func TestResetWithinADecision(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			policy := policyOf(algorithm, 3, time.Hour)
			a, b := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
			mustTake(t, b)                      // a reads then, cells too: it did not write the last one
			s.beforeRead = func(*store.Query) { // between a's write and its read
				s.set(func() { s.beforeRead = nil })
				mustReset(t, b)
			}
			if d := mustTake(t, a); !d.Allowed || d.Used != 1 {
				t.Errorf("%+v, want used 1: what was written before the reset is forgotten, what is admitted after it counts", d.Verdict)
			}
			if got := mustTake(t, b).Used; got != 2 {
				t.Errorf("used %d, want 2", got)
			}
		})
	}
}

// TestResetUnderEveryRoundOfADecision resets whenever the decision reads: it gives
// up, and nothing of it is subtracted from what others count.
func TestResetUnderEveryRoundOfADecision(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			policy := policyOf(algorithm, 3, time.Hour)
			a, b := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
			running(t, a)
			all := somebody
			all.Cost = 3
			resetting := false
			resets := 0
			s.beforeRead = func(*store.Query) {
				if resetting || resets == 8 {
					return
				}
				resetting = true
				resets++
				time.Sleep(time.Millisecond)
				mustReset(t, b)
				resetting = false
			}
			_, err := a.Take(t.Context(), all)
			if inCell := policy.Limits[0].InCell(); inCell && err != nil {
				t.Errorf("%v: a reset of a cell is a conflict like any other", err)
			} else if !inCell && !errors.Is(err, store.ErrOverloaded) {
				t.Errorf("%v, want too many resets", err)
			}
			s.set(func() { s.beforeRead = nil })
			time.Sleep(time.Minute)
			admitted := 0
			for range 12 {
				if mustTake(t, b).Allowed {
					admitted++
				}
			}
			if admitted > 3 {
				t.Errorf("%d of 3 admitted since the last reset", admitted)
			}
		})
	}
}

func TestResetForgetsWhatAFastClockHasDated(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			policy := policyOf(algorithm, 1, time.Hour)
			fast, slow := newEngine(t, store, tolerance, policy), newEngine(t, store, -tolerance, policy)
			mustTake(t, fast)
			mustReset(t, slow)
			if got := used(t, slow, somebody); got != 0 {
				t.Errorf("used %d after a reset", got)
			}
		})
	}
}

// TestResetsCloseToEachOther has units that are counted after a reset, and dated later than the clock for it, forgotten
// by the next.
func TestResetsCloseToEachOther(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm+", one copy, one millisecond", func(t *testing.T) {
			e := limiter.New(embedded.New(nil), nil)
			if err := e.SetPolicies([]policy.Policy{policyOf(algorithm, 1, time.Hour)}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if d := mustTake(t, e); !d.Allowed {
					t.Errorf("take %d: denied right after a reset: %+v", i+1, d.Verdict)
				}
				mustReset(t, e)
			}
		})
		bubble(t, algorithm+", clocks that differ", func(t *testing.T) {
			store := newFakeStore()
			policy := policyOf(algorithm, 1, time.Hour)
			fast, slow := newEngine(t, store, tolerance, policy), newEngine(t, store, -tolerance, policy)
			mustTake(t, slow)
			mustReset(t, fast)
			time.Sleep(50 * time.Millisecond)
			if !mustTake(t, slow).Allowed {
				t.Error("denied after a reset")
			}
			time.Sleep(50 * time.Millisecond)
			mustReset(t, slow)
			time.Sleep(time.Minute)
			if !mustTake(t, slow).Allowed {
				t.Error("denied a minute after the second reset")
			}
		})
	}
}

func TestResetByAClockBeyondTheToleranceIsRefused(t *testing.T) {
	e := limiter.New(newFakeStore(), &limiter.Options{Skewed: func() bool { return true }})
	if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 1, time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := e.Reset(t.Context(), "p", somebody.Identifier); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestResetReachesThisInstancesOwnCounts(t *testing.T) {
	bubble(t, "local", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("sliding-log", 1, time.Hour)
		p.OnStoreError = policy.OnStoreErrorLocal
		e := newEngine(t, s, 0, p)
		mustTake(t, e)
		mustReset(t, e)
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		time.Sleep(time.Second)
		if d := mustTake(t, e); !d.Allowed || !d.Degraded {
			t.Errorf("allowed %v, degraded %v after a reset", d.Allowed, d.Degraded)
		}
	})
}

// TestWaitAfterAReset takes the retry-after at its word though the decision was
// dated ahead of the clock.
func TestWaitAfterAReset(t *testing.T) {
	bubble(t, "sliding-log", func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 1, time.Minute)
		fast, slow := newEngine(t, store, tolerance, policy), newEngine(t, store, -tolerance, policy)
		mustTake(t, fast)
		mustReset(t, fast)
		mustTake(t, slow)
		time.Sleep(time.Millisecond)
		d := mustTake(t, slow)
		time.Sleep(d.RetryAfter)
		if d.Allowed || !mustTake(t, slow).Allowed {
			t.Errorf("denied after waiting %v as told", d.RetryAfter)
		}
	})
}

// TestCountsThatCannotFollowTheirEvents has a reset arrive whose instant events
// outlive and counters do not, and the second write of the counters refused: the
// events of the first are taken back.
func TestCountsThatCannotFollowTheirEvents(t *testing.T) {
	bubble(t, "log and window", func(t *testing.T) {
		s := newFakeStore()
		policy := policy.Policy{Name: "p", Counting: policy.CountingCounters, Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 5, Window: time.Hour},
			{Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour},
		}}
		slow, fast := newEngine(t, s, -150*time.Millisecond, policy), newEngine(t, s, tolerance, policy)
		running(t, fast)
		s.set(func() {
			s.beforeRead = func(*store.Query) {
				s.set(func() { s.beforeRead = nil })
				mustReset(t, slow)
				s.set(func() {
					s.onWrite = func(w *store.Write) error {
						if len(w.Add) > 0 {
							return errors.Join(store.ErrUnavailable, store.ErrNotStored)
						}
						return nil
					}
				})
			}
		})
		var failed *count.StoreError
		if _, err := fast.Take(t.Context(), somebody); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v, want recorded: unknown", err)
		}
		s.set(func() { s.onWrite = nil })
		time.Sleep(time.Minute)
		if d, err := fast.Check(t.Context(), somebody); err != nil || d.Limits()[0].Used != 0 {
			t.Errorf("%d used a minute later (%v)", d.Limits()[0].Used, err)
		}
	})
}
