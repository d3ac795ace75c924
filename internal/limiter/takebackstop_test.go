package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Units that were counted and not admitted are subtracted at a stop, however long subtractions
// wait, and though some are being made at that moment; but not for longer than that and two
// seconds.
func TestTakeBacksAtAStop(t *testing.T) {
	const waits = 5 * time.Second
	for _, c := range []struct {
		name     string
		counting policy.Counting
		stop     time.Duration // later; -1: when it is being written
		writes   time.Duration // how long a write takes then
		within   time.Duration
		hangs    bool
	}{
		{"at once", policy.CountingCounters, 0, 20 * time.Millisecond, waits + 200*time.Millisecond, false},
		{"at once", policy.CountingRows, 0, 20 * time.Millisecond, 200 * time.Millisecond, false},
		{"while it waits", policy.CountingCounters, 2 * time.Second, 20 * time.Millisecond, waits, false},
		{"while it waits", policy.CountingRows, 2 * time.Second, 20 * time.Millisecond, 200 * time.Millisecond, false},
		{"while it is being made", policy.CountingCounters, -1, time.Second, time.Second, false},
		{"while it is being made", policy.CountingRows, -1, time.Second, time.Second, false},
		{"while the store hangs", policy.CountingCounters, 0, time.Hour, waits + 2*time.Second, true},
		{"while the store hangs", policy.CountingRows, 0, time.Hour, waits + 2*time.Second, true},
	} {
		bubble(t, string(c.counting)+", "+c.name, func(t *testing.T) {
			s := newFakeStore()
			p := policyOf("fixed-window", 2000, 24*time.Hour)
			p.Counting = c.counting
			opts := &limiter.Options{StoreTimeout: waits, ClockTolerance: tolerance, Feed: newFakeFeed()}
			e := limiter.New(s, opts)
			must(t, e.SetPolicies([]policy.Policy{p}))
			stop := runningUntil(t, e)
			takes(t, e, 300)
			s.set(func() { s.afterRead = func(*store.State) error { return store.ErrUnavailable } })
			_, err := e.Take(t.Context(), somebody)
			wantRecorded(t, err, count.RecordedUnknown)
			s.set(func() { s.afterRead, s.writeTakes = nil, c.writes })
			if got := used(t, newEngine(t, s, 0, p), somebody); got != 301 {
				t.Fatalf("%d used: nothing is to be given back", got)
			}
			_, before := s.counts()
			for writes := before; c.stop < 0 && writes == before; _, writes = s.counts() {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(c.stop)
			began := time.Now()
			stop()
			if took := time.Since(began); took > c.within {
				t.Errorf("the stop took %v", took)
			}
			if got := used(t, newEngine(t, s, 0, p), somebody); got != 300 && !c.hangs {
				t.Errorf("%d used, want 300", got)
			}
		})
	}
}
