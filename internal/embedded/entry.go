package embedded

import (
	"math"
	"slices"
	"sort"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// entry is all that is kept of one key.
type entry struct {
	logs    [limiter.SpanCount][]limiter.Event // each in order of time
	counts  []limiter.Count
	reset   limiter.Instant
	expires limiter.Instant // of the last thing in it
}

// spareEvents is how far a log may outgrow what matters before its oldest events
// are merged, so that merging is rare.
const spareEvents = 16

// read adds to s what q asks for. The events are e's own. A nil entry is empty.
func (e *entry) read(q *limiter.Query, s *limiter.State) {
	s.Reset = 0
	if e == nil {
		for range q.Logs {
			s.Logs = append(s.Logs, limiter.Log{})
		}
		return
	}
	s.Reset = e.reset
	for _, lq := range q.Logs {
		s.Logs = append(s.Logs, limiter.Log{Events: newest(e.logs[lq.Span], lq.After, lq.Max)})
	}
	if !q.Counts {
		return
	}
	for _, c := range e.counts {
		if c.Expires > q.ExpireAfter {
			s.Counts = append(s.Counts, c)
		}
	}
}

// newest returns the last n events at most that are later than after.
func newest(log []limiter.Event, after limiter.Instant, n int) []limiter.Event {
	log = log[max(0, len(log)-n):]
	if len(log) == 0 || log[0].At > after { // most often all of them are
		return log
	}
	return log[sort.Search(len(log), func(i int) bool { return log[i].At > after }):]
}

// apply stores w. clock tells the time to forget by, and is read only when there is
// something to forget: what w's own instants make old goes only if it is old by that,
// too.
func (e *entry) apply(w *limiter.Write, clock *Store) {
	for _, lw := range w.Logs {
		log := e.logs[lw.Span]
		for _, event := range w.Events {
			log = insert(trim(log, &lw, event.At, clock), event)
			e.expires = max(e.expires, event.At.Add(lw.TTL))
		}
		if len(w.Remove) > 0 {
			log = slices.DeleteFunc(log, func(have limiter.Event) bool { return slices.Contains(w.Remove, have.ID) })
		}
		e.logs[lw.Span] = log
	}
	for _, c := range w.Add {
		e.add(c, clock)
	}
	if w.Reset > e.reset {
		e.forget(w.Reset)
		e.expires = max(e.expires, w.Reset.Add(w.ResetTTL))
	}
}

// insert adds event in order of time.
func insert(log []limiter.Event, event limiter.Event) []limiter.Event {
	n := len(log)
	if n == 0 || log[n-1].At <= event.At {
		return append(log, event)
	}
	i := sort.Search(n, func(i int) bool { return log[i].At > event.At })
	return slices.Insert(log, i, event)
}

// trim makes room in a log that is full: events that have expired at now go, and
// those beyond what matters become one that nobody can remove, dated as the
// youngest of them. That is exact for any use up to the limit.
func trim(log []limiter.Event, lw *limiter.LogWrite, at limiter.Instant, clock *Store) []limiter.Event {
	if len(log) < cap(log) && len(log) < 2*lw.Keep+spareEvents {
		return log
	}
	now := min(at, clock.instant())
	gone := sort.Search(len(log), func(i int) bool { return log[i].At > now.Add(-lw.TTL) })
	log = slices.Delete(log, 0, gone)
	if len(log) < 2*lw.Keep+spareEvents {
		return log
	}
	last := len(log) - lw.Keep - 1
	merged := limiter.Event{At: log[last].At}
	for _, event := range log[:last+1] {
		merged.Cost = min(math.MaxInt64-event.Cost, merged.Cost) + event.Cost
	}
	log[last] = merged
	return slices.Delete(log, 0, last)
}

// add adds c's units to its counter, and forgets counters that have expired when it
// starts a new one.
func (e *entry) add(c limiter.Count, clock *Store) {
	e.expires = max(e.expires, c.Expires)
	for i := range e.counts {
		if have := &e.counts[i]; have.Start == c.Start && have.Epoch == c.Epoch && have.Limit == c.Limit {
			have.Units += c.Units
			return
		}
	}
	now := min(c.Start, clock.instant())
	e.counts = slices.DeleteFunc(e.counts, func(have limiter.Count) bool { return have.Expires <= now })
	e.counts = append(e.counts, c)
}

func (e *entry) forget(reset limiter.Instant) {
	e.reset = reset
	for i := range e.logs {
		e.logs[i] = slices.DeleteFunc(e.logs[i], func(have limiter.Event) bool { return have.At <= reset })
	}
	e.counts = slices.DeleteFunc(e.counts, func(have limiter.Count) bool { return have.Epoch < reset })
}
