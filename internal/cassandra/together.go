package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// maxReadTogether is the most rows of each key in a request for several keys, so that the rows of maxRead keys fit in one
// page. Longer logs are read by requests of their own.
const maxReadTogether = 200

// keyRead is a read of one key's log or running totals, and its result.
type keyRead struct {
	key    []byte
	query  *store.LogQuery // nil: it reads running totals
	after  store.Instant   // for running totals: reads those that expire later
	log    store.Log
	counts []store.Count
	reset  store.Instant
}

// read reads r. Other keys of the lane may share the request. After an error, r must not be used: a trip in progress may be
// writing to it.
func (s *Store) read(ctx context.Context, l lane, r *keyRead) error {
	return s.reads.do(ctx, l, r, 1, func(ctx context.Context) error { return s.readAlone(ctx, l, r) })
}

// readAlone reads r by a request of its own.
func (s *Store) readAlone(ctx context.Context, l lane, r *keyRead) (err error) {
	if l.tally {
		return s.readTally(ctx, l, r)
	}
	r.log, r.reset, err = s.readLogAlone(ctx, r.key, l.level, r.query, r.query.Max)
	return err
}

// readTogether reads all items by one request. If that fails, it reads each item by a request of its own.
func (s *Store) readTogether(ctx context.Context, l lane, items []*item[*keyRead]) {
	if l.tally {
		s.readTalliesTogether(ctx, l, items)
	} else {
		s.readLogsTogether(ctx, l, items)
	}
}

// keyWrite has the requests of a write to one key. All are for one partition, and safe to repeat.
type keyWrite struct {
	key     []byte
	entries []gocql.BatchEntry
}

// writeKey writes entries of key to the table of span. Other keys may share the request.
func (s *Store) writeKey(ctx context.Context, key []byte, span store.Span, level gocql.Consistency, entries []gocql.BatchEntry) error {
	return s.writes.do(ctx, s.laneOf(key, span, level), &keyWrite{key, entries}, len(entries), func(ctx context.Context) error {
		return s.writeKeyAlone(ctx, level, entries)
	})
}

// writeKeyAlone writes entries of one partition by one request. A single entry needs no batch.
func (s *Store) writeKeyAlone(ctx context.Context, level gocql.Consistency, entries []gocql.BatchEntry) error {
	if len(entries) == 1 {
		return s.exec(s.session.Query(entries[0].Stmt, entries[0].Args...).WithContext(ctx).Consistency(level))
	}
	batch := s.batch(ctx, gocql.UnloggedBatch, level)
	batch.Entries = entries
	return s.execBatch(batch)
}

// perBatch returns the most partitions of a batch. A node applies the rows of a batch one after the other, and with
// commitlog_sync: group each row waits for the end of a window. All rows together should wait no longer than tripPatience.
// In requests of their own, they would wait at the same time.
func (s *Store) perBatch() int {
	window := time.Duration(s.groupWindow.Load())
	if window <= tripPatience/maxWritten {
		return maxWritten
	}
	return int(max(1, tripPatience/window))
}

// writeKeysTogether writes the entries of items by one batch, or by several if they are too many for one.
func (s *Store) writeKeysTogether(ctx context.Context, l lane, items []*item[*keyWrite]) {
	inBatches(items, s.perBatch(), func(some []*item[*keyWrite]) { s.writeKeysAsOne(ctx, l, some) })
}

// inBatches calls do concurrently with batches of items. They are as few as possible, have at most most items, and are of
// about the same size.
func inBatches[R any](items []*item[R], most int, do func([]*item[R])) {
	if len(items) <= most {
		do(items)
		return
	}
	batches := (len(items) + most - 1) / most
	var all sync.WaitGroup
	for some := range slices.Chunk(items, (len(items)+batches-1)/batches) {
		all.Go(func() { do(some) })
	}
	all.Wait()
}

// writeKeysAsOne writes the entries of items by one batch. The batch is not atomic: after an error some entries may be stored.
// Each item is then sent once more by a request of its own, to learn its own outcome.
func (s *Store) writeKeysAsOne(ctx context.Context, l lane, items []*item[*keyWrite]) {
	if len(items) == 1 {
		items[0].err = s.writeKeyAlone(ctx, l.level, items[0].request.entries)
		return
	}
	parts := 0
	for _, r := range items {
		parts += r.parts
	}
	batch := s.batch(ctx, gocql.UnloggedBatch, l.level)
	batch.Entries = make([]gocql.BatchEntry, 0, parts)
	for _, r := range items {
		batch.Entries = append(batch.Entries, r.request.entries...)
	}
	if s.session.ExecuteBatch(batch) == nil {
		return
	}
	apart(items, func(r *item[*keyWrite]) { r.err = notSure(s.writeKeyAlone(ctx, l.level, r.request.entries)) })
}

// notSure returns err without ErrNotStored, as an earlier attempt may have been stored.
func notSure(err error) error {
	switch {
	case !errors.Is(err, store.ErrNotStored):
		return err
	case conn.TooFew(err):
		return fmt.Errorf("%w: %s", store.ErrTooFewReplicas, err.Error())
	}
	return errors.New(err.Error())
}

// readLogsTogether is readTogether for logs. It reads as many rows of each key as the item that needs the most, and each item
// takes its own part of the answer. An item that gets too few rows is read by a request of its own.
func (s *Store) readLogsTogether(ctx context.Context, l lane, items []*item[*keyRead]) {
	limit := 0
	for _, r := range items {
		limit = max(limit, r.request.query.Max)
	}
	found, err := s.readLogs(ctx, l, items, limit)
	var left []*item[*keyRead]
	for _, r := range items {
		read := r.request
		rows := found[string(read.key)]
		if err != nil || len(rows.events) >= limit && settledAmong(rows.events) < read.query.Max {
			left = append(left, r)
			continue
		}
		read.log.Events, read.reset = newestOf(rows.events, read.query), rows.reset
	}
	apart(left, func(r *item[*keyRead]) {
		read := r.request
		read.log, read.reset, r.err = s.readLogAlone(ctx, read.key, l.level, read.query, limit)
	})
}

// logRows are rows of one key's log, newest first.
type logRows struct {
	events []store.Event
	reset  store.Instant
}

// readLogs reads, for each item's key, at most limit of the newest rows that are later than the earliest bound of all items.
func (s *Store) readLogs(ctx context.Context, l lane, items []*item[*keyRead], limit int) (map[string]logRows, error) {
	after := store.Distant
	keys := make([][]byte, 0, len(items))
	for _, r := range items {
		after = min(after, r.request.query.After)
		keys = append(keys, r.request.key)
	}
	query := s.session.Query(eventTables[l.span].all, keys, int64(after), limit).WithContext(ctx).Consistency(l.level)
	rows := s.repeated(query.RoutingKey(keys[0]).PageSize(len(keys)*limit + 1)).Iter()
	found := make(map[string]logRows, len(keys))
	var key []byte
	var id gocql.UUID
	var cost, ends, resetAt int64
	for rows.Scan(&key, &id, &cost, &ends, &resetAt) {
		log := found[string(key)]
		log.events, log.reset = append(log.events, eventOf(id, cost, ends)), store.Instant(resetAt)
		found[string(key)] = log
	}
	return found, rows.Close()
}

// newestOf returns the events in rows that q asks for. rows are newest first, and the result is oldest first.
func newestOf(rows []store.Event, q *store.LogQuery) []store.Event {
	settled := 0
	var events []store.Event
	for _, e := range rows {
		if e.At <= q.After || settled == q.Max {
			break
		}
		if e.Ends == 0 {
			settled++
		}
		events = append(events, e)
	}
	slices.Reverse(events)
	return events
}

// apart calls do for all items at the same time.
func apart[R any](items []*item[R], do func(*item[R])) {
	var all sync.WaitGroup
	for _, r := range items {
		all.Go(func() { do(r) })
	}
	all.Wait()
}
