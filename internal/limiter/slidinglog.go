package limiter

import "time"

// slidingLog keeps every event and counts those of the last window: exact, and a
// row per admitted event.
var slidingLog = &algorithm{
	Name:   "sliding-log",
	memory: memoryEvents,
	used:   usedOfLog,
	wait:   waitForLog,
	check: func(l Limit, path string, found *problems) {
		if l.Limit > MaxLogLimit {
			found.add(path+".limit", "%d is too large for a sliding-log, which reads a row per unit in every decision: "+
				"use at most %d, or a sliding-tail, which keeps two counters for any limit", l.Limit, MaxLogLimit)
		}
	},
}

// usedOfLog returns the costs of the events later than now − window. Later
// events count as well, so that a clock that stepped back admits nothing more.
func usedOfLog(r *rule, s *State, now Instant) int64 {
	bound := r.logBound(s, now)
	events := s.Logs[r.log].Events
	used := int64(0)
	for i := len(events) - 1; i >= 0 && events[i].At > bound; i-- {
		used = addSaturating(used, events[i].Cost)
	}
	return used
}

// waitForLog walks from the newest event to the one that must leave before cost
// fits: the first at which what is newer, itself and cost exceed the limit.
func waitForLog(r *rule, s *State, now Instant, cost int64) time.Duration {
	bound := r.logBound(s, now)
	events := s.Logs[r.log].Events
	used := int64(0)
	for i := len(events) - 1; i >= 0 && events[i].At > bound; i-- {
		used = addSaturating(used, events[i].Cost)
		if used > r.Limit.Limit-cost {
			return events[i].At.Add(r.Window + r.slack).Sub(now)
		}
	}
	return 0
}

// logBound returns the latest instant that no longer counts.
func (r *rule) logBound(s *State, now Instant) Instant {
	return max(now.Add(-r.Window-r.slack), s.Reset)
}
