package embedded

import (
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// entry is all that is kept of one key. What nearly every decision looks at comes first,
// so that it is fetched together.
type entry struct {
	reset   limiter.Instant
	expires limiter.Instant // of the last thing in it but for the cell
	logs    [limiter.SpanCount]eventLog
	counts  []limiter.Count
	tallies []limiter.Tally // for engines that share this store within a process: the disk does not keep them
	cell    *cell
	removed []limiter.EventID // the last events that were, so that they stay it

	dirty bool // it is in its shard's dirty
	saved bool // the disk may have it, as it is or was
}

// cell is a key's cell. What is left of one that was removed is the zero cell.
type cell struct {
	limiter.Cell
	expires limiter.Instant
}

// keptRemovals is how many removed events of a key are remembered: whoever repeats an
// append does so within a few milliseconds.
const keptRemovals = 64

// read adds to s what q asks for. The events are e's own. A nil entry is empty.
func (e *entry) read(q *limiter.Query, s *limiter.State, clock *Store) {
	s.Reset, s.Cell = 0, limiter.Cell{}
	if e == nil {
		for range q.Logs {
			s.Logs = append(s.Logs, limiter.Log{})
		}
		return
	}
	s.Reset = e.reset
	for _, lq := range q.Logs {
		l := &e.logs[lq.Span]
		now := q.ExpireAfter
		if l.holds {
			now = min(now, clock.instant())
		}
		s.Logs = append(s.Logs, l.newest(lq.After, lq.Max, now))
	}
	if q.Cell {
		s.Cell = e.liveCell(clock)
	}
	if q.Counts {
		for _, c := range e.counts {
			if c.Expires > q.ExpireAfter {
				s.Counts = append(s.Counts, c)
			}
		}
	}
	if q.Tally {
		for i := range e.tallies {
			if t := &e.tallies[i]; t.Expires > q.ExpireAfter {
				s.Counts = append(s.Counts, t.Count)
			}
		}
	}
}

// liveCell returns the cell, the zero one if it has expired. A nil entry has none.
func (e *entry) liveCell(clock *Store) limiter.Cell {
	if e == nil || e.cell == nil || e.cell.expires < limiter.Distant && e.cell.expires <= clock.instant() {
		return limiter.Cell{}
	}
	return e.cell.Cell
}

// meets returns an error that wraps limiter.ErrConflict unless the cell is the one
// that w expects. A nil entry has none.
func (e *entry) meets(w *limiter.CellWrite, clock *Store) error {
	if have := e.liveCell(clock).Version; have != w.If {
		return fmt.Errorf("%w: it has version %v, not %v", limiter.ErrConflict, have, w.If)
	}
	return nil
}

// lasts returns when nothing in e matters any more; 0 for one that nothing was stored
// in yet.
func (e *entry) lasts() limiter.Instant {
	if e.cell == nil {
		return e.expires
	}
	return max(e.expires, e.cell.expires)
}

// stores reports whether w leaves anything in an entry that was empty.
func stores(w *limiter.Write) bool {
	return len(w.Logs) > 0 && len(w.Events) > 0 || len(w.Add) > 0 || len(w.Put) > 0 || w.Reset > 0 ||
		w.Cell != nil && w.Cell.Version != (limiter.EventID{})
}

// changes reports whether w changes anything in an entry that is there.
func changes(w *limiter.Write) bool {
	return len(w.Events) > 0 || len(w.Remove) > 0 || len(w.Add) > 0 || len(w.Put) > 0 || w.Reset > 0 || w.Cell != nil
}

// apply stores w, whatever its cell expects. clock tells the time to forget by, and
// for logs and counters is read only when there is something to forget: what w's own
// instants make old goes only if it is old by that, too.
func (e *entry) apply(w *limiter.Write, clock *Store) {
	for i := range w.Logs {
		e.applyLog(w, &w.Logs[i], clock)
	}
	if len(w.Remove) > 0 {
		e.removed = append(e.removed, w.Remove...)
		e.removed = slices.Delete(e.removed, 0, max(0, len(e.removed)-keptRemovals))
	}
	for _, c := range w.Add {
		e.add(c, clock)
	}
	for i := range w.Put {
		e.put(&w.Put[i], clock)
	}
	if w.Cell != nil {
		e.set(w.Cell, clock)
	}
	if w.Reset > e.reset {
		e.forget(w.Reset)
	}
	if w.Reset > 0 && w.Reset == e.reset {
		e.expires = max(e.expires, w.Reset.Add(w.ResetTTL))
	}
}

func (e *entry) applyLog(w *limiter.Write, lw *limiter.LogWrite, clock *Store) {
	l := &e.logs[lw.Span]
	if len(w.Events) > 0 {
		l.ttl = max(l.ttl, lw.TTL)
	}
	for _, event := range w.Events {
		if len(e.removed) > 0 && slices.Contains(e.removed, event.ID) {
			continue
		}
		if w.Settle {
			l.settle(event, lw.Keep, clock)
		} else {
			l.append(event, lw.Keep, clock)
		}
		e.expires = max(e.expires, event.At.Add(lw.TTL))
	}
	if len(w.Remove) > 0 {
		l.remove(w.Remove)
	}
}

// set replaces the cell.
func (e *entry) set(w *limiter.CellWrite, clock *Store) {
	if e.cell == nil {
		e.cell = new(cell)
	}
	*e.cell = cell{}
	if w.Version == (limiter.EventID{}) {
		return
	}
	e.cell.Cell = limiter.Cell{Version: w.Version, Value: w.Value}
	e.cell.expires = limiter.Distant
	if w.TTL > 0 {
		e.cell.expires = clock.instant().Add(w.TTL)
	}
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

// put replaces a running total by t unless it is the later one, and forgets those that
// have expired.
func (e *entry) put(t *limiter.Tally, clock *Store) {
	e.expires = max(e.expires, t.Expires)
	now := min(t.Start, clock.instant())
	e.tallies = slices.DeleteFunc(e.tallies, func(have limiter.Tally) bool { return have.Expires <= now })
	at := slices.IndexFunc(e.tallies, func(have limiter.Tally) bool {
		return have.Row == t.Row && have.Start == t.Start && have.Epoch == t.Epoch && have.Limit == t.Limit
	})
	switch {
	case at < 0:
		e.tallies = append(e.tallies, *t)
	case e.tallies[at].Stamp < t.Stamp:
		e.tallies[at] = *t
	}
}

func (e *entry) forget(reset limiter.Instant) {
	e.reset = reset
	for i := range e.logs {
		e.logs[i].keep(func(have *limiter.Event) bool { return have.At > reset })
	}
	e.counts = slices.DeleteFunc(e.counts, func(have limiter.Count) bool { return have.Epoch < reset })
	e.tallies = slices.DeleteFunc(e.tallies, func(have limiter.Tally) bool { return have.Epoch < reset })
}
