package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// fixedWindow counts in windows that start at multiples of their length from the Unix epoch, or follow a calendar. It
// needs one counter, and may admit twice the limit around an edge.
var fixedWindow = &algorithm{
	Algorithm: policy.FixedWindow,
	used:      usedOfWindow,
	wait:      waitForWindow,
	steady:    func(r *Rule, _ *store.State, now store.Instant) store.Instant { _, end := r.WindowAt(now); return end },
}

// usedOfWindow returns the count of now's window and of all later windows, so that a clock that stepped back admits
// nothing more.
func usedOfWindow(r *Rule, s *store.State, now store.Instant) int64 {
	start, _ := r.WindowAt(now)
	return s.UnitsFrom(r.ID, start)
}

// waitForWindow returns the time until the first window that has room for cost.
func waitForWindow(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	room := r.Limit.Limit - cost
	start, end := r.WindowAt(now)
	if s.UnitsFrom(r.ID, start) <= room {
		return 0
	}
	for s.UnitsFrom(r.ID, end) > room {
		_, end = r.WindowAt(s.FirstFrom(r.ID, end))
	}
	return end.Sub(now)
}
