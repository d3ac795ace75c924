package cassandra

import (
	"context"
	"sync"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// WriteEach stores each of w as Write does. Writes that need only one request share trips, without a goroutine for each.
func (s *Store) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	e := &each{store: s, wrote: wrote, items: make([]item[*keyWrite], len(w)), keyWrites: make([]keyWrite, len(w))}
	for i := range w {
		l, ok := e.itemOf(i, &w[i])
		if !ok {
			e.all.Go(func() { wrote(i, s.Write(ctx, &w[i])) })
			continue
		}
		e.all.Add(1)
		e.board(l, &e.items[i])
	}
	for i := range e.lanes {
		s.writes.doAll(e.lanes[i].lane, e.lanes[i].items)
	}
	e.all.Wait()
}

// each has the writes of one WriteEach.
type each struct {
	store     *Store
	wrote     func(i int, err error)
	all       sync.WaitGroup
	items     []item[*keyWrite] // by index of the writes
	keyWrites []keyWrite
	lanes     []boarded // few: one for each node
}

// boarded has the writes for one lane.
type boarded struct {
	lane  lane
	items []*item[*keyWrite]
}

// itemOf makes the item for w, and returns its lane. It returns false if w can't be one item: it is invalid, or needs more
// than one request.
func (e *each) itemOf(i int, w *store.Write) (lane, bool) {
	level, err := levelOf(w.Level)
	if err != nil {
		return lane{}, false
	}
	write, span, ok := keyWriteOf(w)
	if !ok {
		return lane{}, false
	}
	e.keyWrites[i] = write
	e.items[i] = item[*keyWrite]{request: &e.keyWrites[i], parts: len(write.entries), onDone: func(r *item[*keyWrite]) {
		e.wrote(i, written(r.err, 1))
		e.all.Done()
	}}
	return e.store.laneOf(write.key, span, level), true
}

// keyWriteOf returns w as a keyWrite, and the span of its table. It returns false if w needs more than one request: w must
// have only events of one log, or only running totals.
func keyWriteOf(w *store.Write) (write keyWrite, span store.Span, ok bool) {
	if w.Cell != nil || w.Reset > 0 || len(w.Remove) > 0 || len(w.Add) > 0 {
		return keyWrite{}, 0, false
	}
	write.key = w.Key.Bytes()
	switch {
	case len(w.Events) > 0 && len(w.Logs) == 1 && len(w.Put) == 0:
		write.entries = appendEntries(write.key, &w.Logs[0], w)
		return write, w.Logs[0].Span, true
	case len(w.Put) > 0 && (len(w.Events) == 0 || len(w.Logs) == 0):
		write.entries = putEntries(write.key, w)
		return write, w.Span, true
	}
	return keyWrite{}, 0, false
}

// board adds r to the items for l.
func (e *each) board(l lane, r *item[*keyWrite]) {
	for i := range e.lanes {
		if e.lanes[i].lane == l {
			e.lanes[i].items = append(e.lanes[i].items, r)
			return
		}
	}
	e.lanes = append(e.lanes, boarded{lane: l, items: append(make([]*item[*keyWrite], 0, len(e.items)), r)})
}

// appendEntries returns the requests to store w's events in log.
func appendEntries(key []byte, log *store.LogWrite, w *store.Write) []gocql.BatchEntry {
	entries := make([]gocql.BatchEntry, len(w.Events))
	for i := range w.Events {
		entries[i] = appendEntry(key, log, &w.Events[i], w.Settle)
	}
	return entries
}
