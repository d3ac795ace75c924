package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// What was counted and not admitted is given back at a stop, however long subtractions wait, and
// though some are being made at that moment; but not for longer than that and two seconds.
func TestTakeBacksAtAStop(t *testing.T) {
	const waits = 5 * time.Second
	for _, c := range []struct {
		name     string
		counting limiter.Counting
		stop     time.Duration // later; -1: when it is being written
		writes   time.Duration // how long a write takes then
		within   time.Duration
		hangs    bool
	}{
		{"at once", limiter.CountingCounters, 0, 20 * time.Millisecond, waits + 200*time.Millisecond, false},
		{"at once", limiter.CountingRows, 0, 20 * time.Millisecond, 200 * time.Millisecond, false},
		{"while it waits", limiter.CountingCounters, 2 * time.Second, 20 * time.Millisecond, waits, false},
		{"while it waits", limiter.CountingRows, 2 * time.Second, 20 * time.Millisecond, 200 * time.Millisecond, false},
		{"while it is being made", limiter.CountingCounters, -1, time.Second, time.Second, false},
		{"while it is being made", limiter.CountingRows, -1, time.Second, time.Second, false},
		{"while the store hangs", limiter.CountingCounters, 0, time.Hour, waits + 2*time.Second, true},
		{"while the store hangs", limiter.CountingRows, 0, time.Hour, waits + 2*time.Second, true},
	} {
		bubble(t, string(c.counting)+", "+c.name, func(t *testing.T) {
			store := newFakeStore()
			policy := policyOf("fixed-window", 2000, 24*time.Hour)
			policy.Counting = c.counting
			opts := &limiter.Options{StoreTimeout: waits, ClockTolerance: tolerance, Feed: newFakeFeed()}
			e := limiter.New(store, opts)
			must(t, e.SetPolicies([]limiter.Policy{policy}))
			stop := runningUntil(t, e)
			takes(t, e, 300)
			store.set(func() { store.afterRead = func(*limiter.State) error { return limiter.ErrUnavailable } })
			_, err := e.Take(t.Context(), somebody)
			wantRecorded(t, err, limiter.RecordedUnknown)
			store.set(func() { store.afterRead, store.writeTakes = nil, c.writes })
			if got := used(t, newEngine(t, store, 0, policy), somebody); got != 301 {
				t.Fatalf("%d used: nothing is to be given back", got)
			}
			_, before := store.counts()
			for writes := before; c.stop < 0 && writes == before; _, writes = store.counts() {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(c.stop)
			began := time.Now()
			stop()
			if took := time.Since(began); took > c.within {
				t.Errorf("the stop took %v", took)
			}
			if got := used(t, newEngine(t, store, 0, policy), somebody); got != 300 && !c.hangs {
				t.Errorf("%d used, want 300", got)
			}
		})
	}
}
