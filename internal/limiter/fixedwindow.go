package limiter

import "time"

// fixedWindow counts in windows that start at multiples of their length from the
// Unix epoch: one counter, and up to twice the limit around an edge.
var fixedWindow = &algorithm{
	Name:   "fixed-window",
	memory: memoryCounters,
	used:   usedOfWindow,
	wait:   waitForWindow,
	width:  func(l *Limit) time.Duration { return l.Window },
	lasts:  func(l *Limit) time.Duration { return l.Window },
}

// usedOfWindow returns the count of now's window and of any later one, so that a
// clock that stepped back admits nothing more.
func usedOfWindow(r *rule, s *State, now Instant) int64 {
	return s.unitsFrom(r.id, now.floor(r.Window))
}

// waitForWindow returns the time until the first window that has room for cost.
func waitForWindow(r *rule, s *State, now Instant, cost int64) time.Duration {
	start := now.floor(r.Window)
	if s.unitsFrom(r.id, start)+cost <= r.Limit.Limit {
		return 0
	}
	for start = start.Add(r.Window); s.unitsFrom(r.id, start)+cost > r.Limit.Limit; {
		start = s.firstFrom(r.id, start).Add(r.Window)
	}
	return start.Sub(now)
}
