package embedded

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// entry is the state of one key. There may be millions of entries, so fields that few keys need are in rare. The fields
// that nearly every decision reads come first, so that they share a line of the processor's cache.
type entry struct {
	key     store.Key
	reset   store.Instant
	expires store.Instant // the latest expiry of its parts, except the cell
	log     eventLog      // the log of the span log.span
	counts  []store.Count
	cell    *cell
	rare    *rare // nil: all its fields are zero
}

// eventLog is the events of one key and span, in order of time.
type eventLog struct {
	events []store.Event
	sum    int64   // sum of their costs; math.MaxInt64 means that or more
	ttl    seconds // the longest time to live of an event
	holds  bool    // some of the events may be holds
	marks
}

// seconds is a time to live.
type seconds uint32

// secondsOf returns d, which is of whole seconds, or the largest number of seconds if d is longer.
func secondsOf(d time.Duration) seconds { return seconds(min(int64(d/time.Second), math.MaxUint32)) }

func (s seconds) duration() time.Duration { return time.Duration(s) * time.Second }

// marks has fields of an entry that fit into the padding of its log.
type marks struct {
	span  uint8 // the store.Span of the log
	dirty bool  // the entry is in its shard's dirty
	saved bool  // the disk may have the entry in its present or an earlier state
}

// rare has fields that few keys need.
type rare struct {
	logs    [store.SpanCount]eventLog // the logs of other spans than that of the entry's log
	tallies []store.Tally             // for engines that share this store within a process; the disk does not keep them
	removed []store.EventID           // the events that were removed last, which a repeated append must not bring back
}

// cell is a key's cell. A removed cell is the zero value.
type cell struct {
	store.Cell
	expires store.Instant
	claim   claimant
}

// read adds to s the state that q asks for. The events are still e's own memory. A nil entry is empty.
func (e *entry) read(q *store.Query, s *store.State, clock *Store) {
	s.Reset, s.Cell = 0, store.Cell{}
	for _, lq := range q.Logs {
		var log store.Log
		if l := e.logOf(lq.Span); l != nil {
			log = l.newest(lq.After, lq.Max)
		}
		s.Logs = append(s.Logs, log)
	}
	if e == nil {
		return
	}
	s.Reset = e.reset
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
	if q.Tally && e.rare != nil {
		for i := range e.rare.tallies {
			if t := &e.rare.tallies[i]; t.Expires > q.ExpireAfter {
				s.Counts = append(s.Counts, t.Count)
			}
		}
	}
}

// logOf returns the log of span, nil if there is none.
func (e *entry) logOf(span store.Span) *eventLog {
	switch {
	case e == nil:
	case span == store.Span(e.log.span):
		return &e.log
	case e.rare != nil:
		return &e.rare.logs[span]
	}
	return nil
}

// newest returns at most the last n events that are later than after, and the holds among them. Holds are not part of the n,
// because once they have ended, they must not displace events that count.
func (l *eventLog) newest(after store.Instant, n int) store.Log {
	events := l.events
	first := max(0, len(events)-n)
	if l.holds {
		first = firstOf(events, n)
	}
	if first < len(events) && events[first].At <= after { // rarely
		first += sort.Search(len(events)-first, func(i int) bool { return events[first+i].At > after })
	}
	log := store.Log{Events: events, Sum: l.sum}
	if l.holds || l.sum == math.MaxInt64 {
		log.Sum = 0
	}
	if first == 0 {
		return log
	}
	return log.From(first)
}

// firstOf returns the index of the first of the last n events that are not holds.
func firstOf(events []store.Event, n int) int {
	i := len(events)
	for ; i > 0 && n > 0; i-- {
		if events[i-1].Ends == 0 {
			n--
		}
	}
	return i
}

// liveCell returns the cell, or the zero cell if it has expired.
func (e *entry) liveCell(clock *Store) store.Cell {
	if e.cell == nil || e.cell.expires < store.Distant && e.cell.expires <= clock.instant() {
		return store.Cell{}
	}
	return e.cell.Cell
}

// changes reports whether w changes an existing entry.
func changes(w *store.Write) bool {
	return len(w.Events) > 0 || len(w.Remove) > 0 || len(w.Add) > 0 || len(w.Put) > 0 || w.Reset > 0 || w.Cell != nil || w.Present != 0
}

// stores reports whether w would store something in an empty entry.
func stores(w *store.Write) bool {
	return len(w.Logs) > 0 && len(w.Events) > 0 || len(w.Add) > 0 || len(w.Put) > 0 || w.Reset > 0 ||
		w.Cell != nil && w.Cell.Version != (store.EventID{})
}

// apply stores w without comparing the cell's version, and drops e if w leaves it empty. It reads clock for logs and counters
// only if a part may have expired, which it has if it is over both by w's instants and by clock.
func (e *entry) apply(w *store.Write, clock *Store) {
	if w.Present != 0 {
		e.redate(w.Present)
		defer e.dropZeros()
	}
	for i := range w.Logs {
		e.applyLog(w, &w.Logs[i], clock)
	}
	if len(w.Remove) > 0 {
		e.rareFields().noteRemoved(w.Remove)
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
	sh := clock.shard(e.key)
	if sh.dirty != nil {
		sh.touch(e)
	}
	if w.Cell != nil && e.isEmpty() { // w removed its cell
		sh.drop(clock, e)
	}
}

// applyLog applies w to the log of lw's span.
func (e *entry) applyLog(w *store.Write, lw *store.LogWrite, clock *Store) {
	l := e.logOf(lw.Span)
	if l == nil && len(w.Events) > 0 {
		l = e.openLog(lw.Span)
	}
	if l == nil {
		return
	}
	if len(w.Events) > 0 {
		l.ttl = max(l.ttl, secondsOf(lw.TTL))
	}
	for _, event := range w.Events {
		if e.rare != nil && slices.Contains(e.rare.removed, event.ID) {
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

// openLog returns the log of span to append to: e.log if that is of this span or has no events, else a log of e.rare.
func (e *entry) openLog(span store.Span) *eventLog {
	if l := e.logOf(span); l != nil {
		return l
	}
	if len(e.log.events) > 0 {
		return &e.rareFields().logs[span]
	}
	e.log = eventLog{events: e.log.events[:0], marks: marks{span: uint8(span), dirty: e.log.dirty, saved: e.log.saved}}
	return &e.log
}

// searchedEvents is the number of events of one millisecond among which an append looks for its ID. It is large enough to find
// a repeated append, and so small that the search costs little beside the append. Settling looks at all events.
const searchedEvents = 8

// append adds event in order of time. An event with the same ID is replaced, unless it is settled.
func (l *eventLog) append(event store.Event, keep int, clock *Store) {
	n := len(l.events)
	if n > 0 && l.events[n-1].At >= event.At { // rarely
		if i := l.find(&event, searchedEvents); i >= 0 {
			if l.events[i].Ends != 0 {
				l.replace(i, event)
			}
			return
		}
	}
	if n+1 >= cap(l.events) || n >= 2*keep+spareEvents {
		l.makeRoom(keep, event.At, clock)
		n = len(l.events)
	}
	l.holds = l.holds || event.Ends != 0
	l.sum = store.AddSaturating(l.sum, event.Cost)
	if n == 0 || l.events[n-1].At <= event.At {
		l.events = append(l.events, event)
		return
	}
	l.events = slices.Insert(l.events, l.after(event.At), event)
}

// settle makes event permanent, and adds it if it is missing. An event that was dated anew keeps its date.
func (l *eventLog) settle(event store.Event, keep int, clock *Store) {
	event.Ends = 0
	if i := slices.IndexFunc(l.events, func(have store.Event) bool { return have.ID == event.ID }); i >= 0 {
		event.At = l.events[i].At
		l.replace(i, event)
		return
	}
	l.append(event, keep, clock)
}

func (l *eventLog) replace(i int, event store.Event) {
	l.events[i] = event
	l.summarize()
}

// after returns the index of the first event later than at.
func (l *eventLog) after(at store.Instant) int {
	n := len(l.events)
	if n == 0 || l.events[n-1].At <= at {
		return n
	}
	return sort.Search(n, func(i int) bool { return l.events[i].At > at })
}

// find returns the index of the event with event's ID and instant, -1 if it is not among the last few of that instant.
func (l *eventLog) find(event *store.Event, few int) int {
	last := l.after(event.At) - 1
	for i := last; i >= 0 && i > last-few && l.events[i].At == event.At; i-- {
		if l.events[i].ID == event.ID {
			return i
		}
	}
	return -1
}

// remove removes the events with these ids.
func (l *eventLog) remove(ids []store.EventID) {
	l.filter(func(have *store.Event) bool { return !slices.Contains(ids, have.ID) })
}

// filter keeps the events for which keep returns true, and removes all others.
func (l *eventLog) filter(keep func(*store.Event) bool) {
	l.events = slices.DeleteFunc(l.events, func(have store.Event) bool { return !keep(&have) })
	l.summarize()
}

// summarize sets l's sum and holds by its events.
func (l *eventLog) summarize() {
	l.sum = store.SumOf(l.events)
	l.holds = slices.ContainsFunc(l.events, func(have store.Event) bool { return have.Ends != 0 })
}

// set replaces the cell.
func (e *entry) set(w *store.CellWrite, clock *Store) {
	if e.cell == nil {
		e.cell = new(cell)
	}
	clock.claims.add(e.cell.claim, -1)
	value := e.cell.Value[:0]
	*e.cell = cell{}
	if w.Version == (store.EventID{}) {
		return
	}
	e.cell.Cell = store.Cell{Version: w.Version, Value: append(value, w.Value...)}
	e.cell.claim = claimantOf(w)
	clock.claims.add(e.cell.claim, 1)
	e.cell.expires = store.Distant
	if w.TTL > 0 {
		e.cell.expires = clock.instant().Add(w.TTL)
	}
}

// add adds c's units to its counter. If it starts a new counter, it drops expired ones.
func (e *entry) add(c store.Count, clock *Store) {
	e.expires = max(e.expires, c.Expires)
	for i := range e.counts {
		if have := &e.counts[i]; have.Start == c.Start && have.Epoch == c.Epoch && have.Limit == c.Limit {
			have.Units += c.Units
			return
		}
	}
	now := min(c.Start, clock.dated())
	e.counts = slices.DeleteFunc(e.counts, func(have store.Count) bool { return have.Expires <= now })
	e.counts = append(e.counts, c)
}

// put replaces the running total of the same row by t, unless t is older, and drops expired running totals.
func (e *entry) put(t *store.Tally, clock *Store) {
	e.expires = max(e.expires, t.Expires)
	e.rareFields().put(t, min(t.Start, clock.dated()))
}

func (e *entry) forget(reset store.Instant) {
	e.reset = reset
	for span := range store.SpanCount {
		if l := e.logOf(span); l != nil {
			l.filter(func(have *store.Event) bool { return have.At > reset })
		}
	}
	e.counts = slices.DeleteFunc(e.counts, func(have store.Count) bool { return have.Epoch < reset })
	if e.rare != nil {
		e.rare.tallies = slices.DeleteFunc(e.rare.tallies, func(have store.Tally) bool { return have.Epoch < reset })
	}
}

// rareFields returns e.rare, and makes it if it is nil.
func (e *entry) rareFields() *rare {
	if e.rare == nil {
		e.rare = new(rare)
	}
	return e.rare
}

// keptRemovals is the number of removed events that are remembered for a key. It suffices, as a repeated append comes within
// a few milliseconds.
const keptRemovals = 64

// noteRemoved remembers that the events with these ids were removed.
func (r *rare) noteRemoved(ids []store.EventID) {
	r.removed = append(r.removed, ids...)
	r.removed = slices.Delete(r.removed, 0, max(0, len(r.removed)-keptRemovals))
}

func (r *rare) put(t *store.Tally, now store.Instant) {
	r.tallies = slices.DeleteFunc(r.tallies, func(have store.Tally) bool { return have.Expires <= now })
	at := slices.IndexFunc(r.tallies, func(have store.Tally) bool {
		return have.Row == t.Row && have.Start == t.Start && have.Epoch == t.Epoch && have.Limit == t.Limit
	})
	switch {
	case at < 0:
		r.tallies = append(r.tallies, *t)
	case r.tallies[at].Stamp < t.Stamp:
		r.tallies[at] = *t
	}
}

// isEmpty reports whether nothing has been stored in e yet.
func (e *entry) isEmpty() bool { return e.expires == 0 && (e.cell == nil || e.cell.expires == 0) }

// isOver reports whether all parts of e have expired, by Store.dated and Store.instant.
func (e *entry) isOver(dated, passed store.Instant) bool {
	return e.expires <= dated && (e.cell == nil || e.cell.expires <= passed)
}
