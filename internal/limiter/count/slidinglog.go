package count

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// slidingLog keeps every event and counts those of the last window. It is exact, and needs a row for each admitted
// event.
var slidingLog = &algorithm{
	Algorithm: policy.SlidingLog,
	used:      usedOfLog,
	wait:      waitForLog,
	steady:    steadyLog,
}

// usedOfLog returns the sum of the costs of events later than now − window. Events later than now count as well, so
// that a clock that stepped back admits nothing more.
func usedOfLog(r *Rule, s *store.State, now store.Instant) int64 {
	bound := r.logBound(s, now)
	log := &s.Logs[r.log]
	if log.Sum > 0 {
		return log.After(bound).Sum
	}
	used := int64(0)
	for i := len(log.Events) - 1; i >= 0 && log.Events[i].At > bound; i-- {
		if r.endsAfter(&log.Events[i], now) {
			used = store.AddSaturating(used, log.Events[i].Cost)
		}
	}
	return used
}

// steadyLog returns when the oldest event that counts leaves the window, Distant if none counts. If holds count, it
// returns now, as they may be released at any time.
func steadyLog(r *Rule, s *store.State, now store.Instant) store.Instant {
	log := &s.Logs[r.log]
	if log.Sum == 0 && slices.ContainsFunc(log.Events, func(e store.Event) bool { return e.Ends != 0 && r.endsAfter(&e, now) }) {
		return now
	}
	counted := log.After(r.logBound(s, now))
	if len(counted.Events) == 0 {
		return store.Distant
	}
	return r.leaves(&counted.Events[0])
}

// endsAfter reports whether e has not ended at now: it is permanent, or a hold that has not ended by the slowest clock.
func (r *Rule) endsAfter(e *store.Event, now store.Instant) bool {
	return e.Ends == 0 || e.Ends.Add(r.slack) > now
}

// leaves returns the instant from which on e no longer counts.
func (r *Rule) leaves(e *store.Event) store.Instant {
	leaves := e.At + r.countsFor
	if e.Ends != 0 {
		leaves = min(leaves, e.Ends.Add(r.slack))
	}
	return leaves
}

// waitForLog walks from the newest event to the one that must leave before cost fits: the first whose cost, with those
// of newer events and cost itself, exceeds the limit. Without holds, newer events leave later.
func waitForLog(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
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
		used = store.AddSaturating(used, events[i].Cost)
		if used > room {
			return (events[i].At + r.countsFor).Sub(now)
		}
	}
	return 0
}

// waitFromOldest computes waitForLog from the oldest event on, in fewer steps if few events have to leave.
func (r *Rule) waitFromOldest(log *store.Log, bound, now store.Instant, room int64) time.Duration {
	counted := log.After(bound)
	used := counted.Sum
	for i := 0; used > room; i++ {
		if used -= counted.Events[i].Cost; used <= room {
			return r.leaves(&counted.Events[i]).Sub(now)
		}
	}
	return 0
}

// waitAmongHolds computes waitForLog for events that leave in another order than they came.
func (r *Rule) waitAmongHolds(events []store.Event, bound, now store.Instant, cost int64) time.Duration {
	counted := slices.DeleteFunc(slices.Clone(events), func(e store.Event) bool { return e.At <= bound || !r.endsAfter(&e, now) })
	slices.SortFunc(counted, func(a, b store.Event) int { return cmp.Compare(r.leaves(&b), r.leaves(&a)) })
	used := int64(0)
	for i := range counted {
		used = store.AddSaturating(used, counted[i].Cost)
		if used > r.Limit.Limit-cost {
			return r.leaves(&counted[i]).Sub(now)
		}
	}
	return 0
}

// logBound returns the latest instant that no longer counts.
func (r *Rule) logBound(s *store.State, now store.Instant) store.Instant {
	return max(now-r.countsFor, s.Reset)
}
