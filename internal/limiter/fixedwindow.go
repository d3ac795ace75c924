package limiter

import "time"

// fixedWindow counts in windows that start at multiples of their length from the
// Unix epoch, or go by a calendar: one counter, and up to twice the limit around an
// edge.
var fixedWindow = &algorithm{
	Name:   "fixed-window",
	memory: memoryCounters,
	used:   usedOfWindow,
	wait:   waitForWindow,
	steady: func(r *rule, _ *State, now Instant) Instant { _, end := r.windowAt(now); return end },
	width:  func(l *Limit) time.Duration { return l.Window },
	lasts:  func(l *Limit) time.Duration { return l.Window },
}

// usedOfWindow returns the count of now's window and of any later one, so that a
// clock that stepped back admits nothing more.
func usedOfWindow(r *rule, s *State, now Instant) int64 {
	start, _ := r.windowAt(now)
	return s.unitsFrom(r.id, start)
}

// waitForWindow returns the time until the first window that has room for cost.
func waitForWindow(r *rule, s *State, now Instant, cost int64) time.Duration {
	room := r.Limit.Limit - cost
	start, end := r.windowAt(now)
	if s.unitsFrom(r.id, start) <= room {
		return 0
	}
	for s.unitsFrom(r.id, end) > room {
		_, end = r.windowAt(s.firstFrom(r.id, end))
	}
	return end.Sub(now)
}
