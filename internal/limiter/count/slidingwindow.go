package count

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// slidingWindow counts in sub-windows, which a policy calls buckets, and drops each as soon as its start has left the
// window. It needs a counter per sub-window for any limit. Units from the end of a sub-window are dropped early, so up to
// twice the limit may pass within W·(1 − 1/buckets), but fewer units with more buckets.
var slidingWindow = &algorithm{
	Algorithm: policy.SlidingWindow,
	used:      usedOfSlidingWindow,
	wait:      waitForSlidingWindow,
	steady:    steadySlidingWindow,
}

// usedOfSlidingWindow returns the units of all sub-windows that start after now − window. Those later than now count as
// well, so that a clock that stepped back admits nothing more.
func usedOfSlidingWindow(r *Rule, s *store.State, now store.Instant) int64 {
	return s.UnitsFrom(r.ID, now.Add(-r.Window)+1)
}

// steadySlidingWindow returns when the oldest sub-window that counts leaves the window.
func steadySlidingWindow(r *Rule, s *store.State, now store.Instant) store.Instant {
	from, until := now.Add(-r.Window)+1, now.Add(r.Window)
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start >= from && c.Epoch >= s.Reset && c.Limit == r.ID {
			until = min(until, c.Start.Add(r.Window))
		}
	}
	return until
}

// waitForSlidingWindow returns the time until enough sub-windows, the oldest first, have left for cost to fit. It adds up
// units from the newest sub-window on: the oldest sub-window that finds room beside all newer ones is the last to leave.
func waitForSlidingWindow(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	var memory [32]store.WindowUnits // enough for most policies
	windows := s.AppendFrom(memory[:0], r.ID, now.Add(-r.Window)+1)
	slices.SortFunc(windows, func(a, b store.WindowUnits) int { return cmp.Compare(a.Start, b.Start) })
	room, newer, all, wait := r.Limit.Limit-cost, int64(0), int64(0), time.Duration(0)
	for i := len(windows) - 1; i >= 0; i-- {
		if i+1 < len(windows) && windows[i].Start != windows[i+1].Start {
			newer = all
		}
		if newer <= room {
			wait = windows[i].Start.Add(r.Window).Sub(now)
		}
		all = store.AddSaturating(all, windows[i].Units)
	}
	if all <= room {
		return 0
	}
	return wait
}
