package limiter

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// slidingLog keeps every event and counts those of the last window: exact, and a
// row per admitted event.
var slidingLog = &algorithm{
	Name:   "sliding-log",
	memory: memoryEvents,
	used:   usedOfLog,
	wait:   waitForLog,
	steady: steadyLog,
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
	log := &s.Logs[r.log]
	if log.Sum > 0 {
		return log.after(bound).Sum
	}
	used := int64(0)
	for i := len(log.Events) - 1; i >= 0 && log.Events[i].At > bound; i-- {
		if r.holds(&log.Events[i], now) {
			used = addSaturating(used, log.Events[i].Cost)
		}
	}
	return used
}

// steadyLog returns when the oldest event that counts leaves; now where there is none, or that
// is not known, as some may be holds.
func steadyLog(r *rule, s *State, now Instant) Instant {
	log := &s.Logs[r.log]
	if log.Sum == 0 && slices.ContainsFunc(log.Events, func(e Event) bool { return e.Ends != 0 }) {
		return now
	}
	counted := log.after(r.logBound(s, now))
	if len(counted.Events) == 0 {
		return now
	}
	return r.leaves(&counted.Events[0])
}

// after returns what of l is later than bound.
func (l *Log) after(bound Instant) Log {
	if len(l.Events) == 0 || l.Events[0].At > bound { // most often all of it is
		return *l
	}
	return l.From(sort.Search(len(l.Events), func(i int) bool { return l.Events[i].At > bound }))
}

// holds reports whether e counts at now: it was recorded, or its hold has not ended
// by the slowest clock.
func (r *rule) holds(e *Event, now Instant) bool { return e.Ends == 0 || e.Ends.Add(r.slack) > now }

// leaves returns when e stops counting.
func (r *rule) leaves(e *Event) Instant {
	leaves := e.At + r.counts
	if e.Ends != 0 {
		leaves = min(leaves, e.Ends.Add(r.slack))
	}
	return leaves
}

// waitForLog walks from the newest event to the one that must leave before cost
// fits: the first at which what is newer, itself and cost exceed the limit. Without
// holds, the newer leaves later.
func waitForLog(r *rule, s *State, now Instant, cost int64) time.Duration {
	bound, room := r.logBound(s, now), r.Limit.Limit-cost
	log := &s.Logs[r.log]
	if log.Sum > 0 && log.Sum <= 2*room {
		return r.waitFromOldest(log, bound, now, room)
	}
	events := log.Events
	used := int64(0)
	for i := len(events) - 1; i >= 0 && events[i].At > bound; i-- {
		if events[i].Ends != 0 {
			return r.waitAmongHolds(events, bound, now, cost)
		}
		used = addSaturating(used, events[i].Cost)
		if used > room {
			return r.leaves(&events[i]).Sub(now)
		}
	}
	return 0
}

// waitFromOldest is waitForLog from the other end, which is nearer where there is room for
// most of what is used.
func (r *rule) waitFromOldest(log *Log, bound, now Instant, room int64) time.Duration {
	counted := log.after(bound)
	used := counted.Sum
	for i := 0; used > room; i++ {
		if used -= counted.Events[i].Cost; used <= room {
			return r.leaves(&counted.Events[i]).Sub(now)
		}
	}
	return 0
}

// waitAmongHolds is waitForLog for events that don't leave in the order in which they
// came.
func (r *rule) waitAmongHolds(events []Event, bound, now Instant, cost int64) time.Duration {
	counted := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.At <= bound || !r.holds(&e, now) })
	slices.SortFunc(counted, func(a, b Event) int { return cmp.Compare(r.leaves(&b), r.leaves(&a)) })
	used := int64(0)
	for i := range counted {
		used = addSaturating(used, counted[i].Cost)
		if used > r.Limit.Limit-cost {
			return r.leaves(&counted[i]).Sub(now)
		}
	}
	return 0
}

// logBound returns the latest instant that no longer counts.
func (r *rule) logBound(s *State, now Instant) Instant {
	return max(now-r.counts, s.Reset)
}
