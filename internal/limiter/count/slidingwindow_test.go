package count

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// waitOneByOne is what waitForSlidingWindow computes, as it is said: sub-windows go, the oldest first,
// until cost fits.
func waitOneByOne(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	at := now
	for from := now.Add(-r.Window) + 1; s.UnitsFrom(r.ID, from) > r.Limit.Limit-cost; {
		oldest := s.FirstFrom(r.ID, from)
		at, from = oldest.Add(r.Window), oldest+1
	}
	return at.Sub(now)
}

// TestWaitForSlidingWindow has windows in any order, several rows of one, totals below 0 while they
// are provisional, other limits, and what was reset.
func TestWaitForSlidingWindow(t *testing.T) {
	const now = store.Instant(1_000_000_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		l := policy.Limit{Algorithm: "sliding-window", Limit: 1 + rng.Int64N(30), Window: time.Minute, Buckets: 10}.WithDefaults()
		r := Rule{Limit: l, ID: l.ID(), Kind: policy.SlidingWindow, algorithm: slidingWindow, Capacity: l.Limit}
		s := store.State{Reset: store.Instant(rng.IntN(2))}
		for range rng.IntN(50) {
			c := store.Count{Limit: r.ID, Start: (now - 70_000 + store.Instant(rng.IntN(90_000))).Floor(6 * time.Second), Units: rng.Int64N(12) - 3}
			c.Epoch = store.Instant(rng.IntN(4))
			if rng.IntN(8) == 0 {
				c.Limit = "another"
			}
			s.Counts = append(s.Counts, c)
		}
		cost := rng.Int64N(l.Limit + 1)
		if got, want := waitForSlidingWindow(&r, &s, now, cost), waitOneByOne(&r, &s, now, cost); got != want {
			t.Fatalf("%v, want %v: cost %d of %d beside %+v", got, want, cost, l.Limit, s.Counts)
		}
	}
}
