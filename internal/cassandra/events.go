package cassandra

import (
	"context"
	"slices"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// eventStatements are the requests to one table of events. All have the policy's levels. Appends, removals and resets have
// the write level, so that a later read at the read level sees them.
//
// The timestamp of each write of an event consists of the event's own instant and the kind of write. So the last kind wins,
// independently of clocks, nodes and delays: a removal removes its event even if it overtakes it, or is sent by an instance
// whose clock is behind. With timestamps by instances' clocks, which are the default, an event could survive its removal, and
// a settled hold could end.
type eventStatements struct {
	insert string // repeatable, as the same id is the same row
	hold   string // repeatable; sets the hold's end, which is 0 once it is settled
	newest string // reads the newest events of a key
	all    string // reads the newest events of several keys
	remove string // repeatable
	reset  string // repeatable; its timestamp is the reset's own instant, so that the latest reset wins
}

// The kinds of writes of an event, in microseconds after its instant. The largest wins.
const (
	saysAppend = iota
	saysSettle
	saysRemove
)

const microsPerMilli = 1000

// timestamp returns the timestamp of a write of this kind to the event id.
func timestamp(id store.EventID, kind int64) int64 {
	return int64(id.Instant())*microsPerMilli + kind
}

// eventTables has the statements for each span's table.
var eventTables = [store.SpanCount]eventStatements{
	store.SpanHour:  newEventStatements("events_hour"),
	store.SpanDay:   newEventStatements("events_day"),
	store.SpanMonth: newEventStatements("events_month"),
}

func newEventStatements(table string) eventStatements {
	return eventStatements{
		insert: "INSERT INTO " + table + " (key, event_id, cost) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?",
		hold:   "INSERT INTO " + table + " (key, event_id, cost, ends_at) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?",
		newest: "SELECT event_id, cost, ends_at, reset_at FROM " + table + " WHERE key = ? AND event_id > maxTimeuuid(?) LIMIT ?",
		all: "SELECT key, event_id, cost, ends_at, reset_at FROM " + table +
			" WHERE key IN ? AND event_id > maxTimeuuid(?) PER PARTITION LIMIT ?",
		remove: "DELETE FROM " + table + " USING TIMESTAMP ? WHERE key = ? AND event_id = ?",
		reset:  "UPDATE " + table + " USING TTL ? AND TIMESTAMP ? SET reset_at = ? WHERE key = ?",
	}
}

// readLog returns the newest events that q asks for, and the reset that was read with them. A reset can't be read without
// events, and has no effect then.
func (s *Store) readLog(
	ctx context.Context, key []byte, level gocql.Consistency, q *store.LogQuery,
) (log store.Log, reset store.Instant, err error) {
	if q.Max > maxReadTogether {
		return s.readLogAlone(ctx, key, level, q, q.Max)
	}
	r := &keyRead{key: key, query: q}
	l := s.laneOf(key, q.Span, level).reading(q.After, store.InstantOf(s.config.Now()))
	if err := s.read(ctx, l, r); err != nil {
		return store.Log{}, 0, err
	}
	return r.log, r.reset, nil
}

// readLogAlone reads limit rows, and more if holds are among them: a hold that has ended, but whose row has not expired yet,
// must not take the place of an event that counts.
func (s *Store) readLogAlone(
	ctx context.Context, key []byte, level gocql.Consistency, q *store.LogQuery, limit int,
) (log store.Log, reset store.Instant, err error) {
	for ; ; limit *= 2 {
		query := s.session.Query(eventTables[q.Span].newest, key, int64(q.After), limit).WithContext(ctx).Consistency(level)
		rows := s.repeated(query.PageSize(limit + 1)).Iter()
		log.Events = make([]store.Event, 0, rows.NumRows())
		var id gocql.UUID
		var cost, ends, resetAt int64
		for rows.Scan(&id, &cost, &ends, &resetAt) {
			log.Events = append(log.Events, eventOf(id, cost, ends))
		}
		if err := rows.Close(); err != nil {
			return store.Log{}, 0, err
		}
		if len(log.Events) < limit || settledAmong(log.Events) >= q.Max {
			slices.Reverse(log.Events)
			return log, store.Instant(resetAt), nil
		}
	}
}

// settledAmong returns the number of events that are not holds.
func settledAmong(events []store.Event) (n int) {
	for i := range events {
		if events[i].Ends == 0 {
			n++
		}
	}
	return n
}

// eventOf returns the event of a row, in which null columns are 0. A row counts for at least one unit, as a smaller cost is
// damaged data that must not permit more.
func eventOf(id gocql.UUID, cost, ends int64) store.Event {
	eventID := store.EventID(id)
	return store.Event{ID: eventID, At: eventID.Instant(), Cost: max(1, cost), Ends: store.Instant(ends)}
}

// appendEvents stores w's events in one request, as they are all in the key's partition.
func (s *Store) appendEvents(ctx context.Context, key []byte, level gocql.Consistency, log *store.LogWrite, w *store.Write) error {
	return s.writeKey(ctx, key, log.Span, level, appendEntries(key, log, w))
}

// appendEntry returns the request to store e. An event that was never a hold has no end, to save a column in every row.
func appendEntry(key []byte, log *store.LogWrite, e *store.Event, settle bool) gocql.BatchEntry {
	statements, ttl := &eventTables[log.Span], whole(log.TTL)
	entry := gocql.BatchEntry{Idempotent: true}
	switch {
	case settle:
		entry.Stmt, entry.Args = statements.hold, []any{key, gocql.UUID(e.ID), e.Cost, int64(0), ttl, timestamp(e.ID, saysSettle)}
	case e.Ends != 0:
		entry.Stmt, entry.Args = statements.hold, []any{key, gocql.UUID(e.ID), e.Cost, int64(e.Ends), ttl, timestamp(e.ID, saysAppend)}
	default:
		entry.Stmt, entry.Args = statements.insert, []any{key, gocql.UUID(e.ID), e.Cost, ttl, timestamp(e.ID, saysAppend)}
	}
	return entry
}

func (s *Store) removeEvents(ctx context.Context, key []byte, level gocql.Consistency, log *store.LogWrite, ids []store.EventID) error {
	entries := make([]gocql.BatchEntry, len(ids))
	for i, id := range ids {
		args := []any{timestamp(id, saysRemove), key, gocql.UUID(id)}
		entries[i] = gocql.BatchEntry{Stmt: eventTables[log.Span].remove, Args: args, Idempotent: true}
	}
	return s.writeKey(ctx, key, log.Span, level, entries)
}

func (s *Store) resetLog(ctx context.Context, key []byte, level gocql.Consistency, log *store.LogWrite, w *store.Write) error {
	at := int64(w.Reset)
	query := s.session.Query(eventTables[log.Span].reset, whole(w.ResetTTL), at*microsPerMilli, at, key)
	return s.exec(query.WithContext(ctx).Consistency(level))
}

// batch returns an empty batch of this kind. It is retried on another node, unless it adds to counters. An unlogged batch is
// also sent to a second node while the first is slow; a logged one is not, as it costs several nodes more.
func (s *Store) batch(ctx context.Context, kind gocql.BatchType, level gocql.Consistency) *gocql.Batch {
	batch := s.session.NewBatch(kind).WithContext(ctx)
	batch.SetConsistency(level)
	if kind == gocql.UnloggedBatch {
		batch.SpeculativeExecutionPolicy(s.config.SecondNode())
	}
	if kind != gocql.CounterBatch {
		batch.RetryPolicy(conn.NextHost{})
	}
	return batch
}
