package cassandra

import (
	"context"
	"slices"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// eventStatements are the requests to one table of events. The level is the
// policy's for all of them: appends at its write level, so that a later read at
// its read level meets them; removals and resets likewise.
type eventStatements struct {
	insert string // repeatable: the same id is the same row
	newest string
	remove string // repeatable
	reset  string // repeatable; its timestamp is the reset's own instant, so that the latest reset wins
}

// eventTables has the statements for each span's table.
var eventTables = [limiter.SpanCount]eventStatements{
	limiter.SpanHour:  newEventStatements("events_hour"),
	limiter.SpanDay:   newEventStatements("events_day"),
	limiter.SpanMonth: newEventStatements("events_month"),
}

func newEventStatements(table string) eventStatements {
	return eventStatements{
		insert: "INSERT INTO " + table + " (key, event_id, cost) VALUES (?, ?, ?) USING TTL ?",
		newest: "SELECT event_id, cost, reset_at FROM " + table + " WHERE key = ? AND event_id > maxTimeuuid(?) LIMIT ?",
		remove: "DELETE FROM " + table + " WHERE key = ? AND event_id = ?",
		reset:  "UPDATE " + table + " USING TTL ? AND TIMESTAMP ? SET reset_at = ? WHERE key = ?",
	}
}

// readLog returns the newest events that q asks for, and the reset that was read
// beside them. Without events there is nothing that a reset could forget.
func (s *Store) readLog(
	ctx context.Context, key []byte, level gocql.Consistency, q *limiter.LogQuery,
) (log limiter.Log, reset limiter.Instant, err error) {
	query := s.session.Query(eventTables[q.Span].newest, key, int64(q.After), q.Max).WithContext(ctx).Consistency(level).PageSize(q.Max + 1)
	rows := s.repeated(query).Iter()
	log.Events = make([]limiter.Event, 0, rows.NumRows())
	var id gocql.UUID
	var cost, resetAt int64
	for rows.Scan(&id, &cost, &resetAt) {
		eventID := limiter.EventID(id)
		log.Events = append(log.Events, limiter.Event{ID: eventID, At: eventID.Instant(), Cost: cost})
	}
	slices.Reverse(log.Events)
	return log, limiter.Instant(resetAt), rows.Close()
}

// appendEvents stores events in one request: they share the key's partition.
func (s *Store) appendEvents(
	ctx context.Context, key []byte, level gocql.Consistency, log *limiter.LogWrite, events []limiter.Event,
) error {
	statement, ttl := eventTables[log.Span].insert, whole(log.TTL)
	if len(events) == 1 {
		e := &events[0]
		return exec(s.session.Query(statement, key, gocql.UUID(e.ID), e.Cost, ttl).WithContext(ctx).Consistency(level))
	}
	batch := s.batch(ctx, gocql.UnloggedBatch, level)
	for _, e := range events {
		args := []any{key, gocql.UUID(e.ID), e.Cost, ttl}
		batch.Entries = append(batch.Entries, gocql.BatchEntry{Stmt: statement, Args: args, Idempotent: true})
	}
	return stored(s.session.ExecuteBatch(batch), batch.Attempts())
}

func (s *Store) removeEvents(ctx context.Context, key []byte, level gocql.Consistency, log *limiter.LogWrite, ids []limiter.EventID) error {
	statement := eventTables[log.Span].remove
	if len(ids) == 1 {
		return exec(s.session.Query(statement, key, gocql.UUID(ids[0])).WithContext(ctx).Consistency(level))
	}
	batch := s.batch(ctx, gocql.UnloggedBatch, level)
	for _, id := range ids {
		batch.Entries = append(batch.Entries, gocql.BatchEntry{Stmt: statement, Args: []any{key, gocql.UUID(id)}, Idempotent: true})
	}
	return stored(s.session.ExecuteBatch(batch), batch.Attempts())
}

func (s *Store) resetLog(ctx context.Context, key []byte, level gocql.Consistency, log *limiter.LogWrite, w *limiter.Write) error {
	at := int64(w.Reset)
	const microsPerMilli = 1000
	query := s.session.Query(eventTables[log.Span].reset, whole(w.ResetTTL), at*microsPerMilli, at, key)
	return exec(query.WithContext(ctx).Consistency(level))
}

// batch returns an empty batch that retries on another node if all its entries may
// be sent twice.
func (s *Store) batch(ctx context.Context, kind gocql.BatchType, level gocql.Consistency) *gocql.Batch {
	batch := s.session.NewBatch(kind).WithContext(ctx)
	batch.SetConsistency(level)
	if kind != gocql.CounterBatch {
		batch.RetryPolicy(nextHost{})
	}
	return batch
}
