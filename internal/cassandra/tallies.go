package cassandra

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// tallyStatements are the requests to one table of running totals. They have the policy's levels, like those to the tables of
// events. The timestamp of a total is its writer's own stamp, so that the later of two totals wins in any order of arrival.
type tallyStatements struct {
	put    string // repeatable
	unread string // reads the totals of a key
	all    string // reads the totals of several keys
	reset  string // repeatable; its timestamp is the reset's own instant, so that the latest reset wins
}

// tallyTables has the statements for each span's table.
var tallyTables = [store.SpanCount]tallyStatements{
	store.SpanHour:  newTallyStatements("tallies_hour"),
	store.SpanDay:   newTallyStatements("tallies_day"),
	store.SpanMonth: newTallyStatements("tallies_month"),
}

func newTallyStatements(table string) tallyStatements {
	const columns = "key, expires_at, limit_id, window_start, epoch, writer, units, reset_at"
	return tallyStatements{
		put: "INSERT INTO " + table + " (key, expires_at, limit_id, window_start, epoch, writer, units) " +
			"VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?",
		unread: "SELECT " + columns + " FROM " + table + " WHERE key = ? AND expires_at > ?",
		all:    "SELECT " + columns + " FROM " + table + " WHERE key IN ? AND expires_at > ?",
		reset:  "UPDATE " + table + " USING TTL ? AND TIMESTAMP ? SET reset_at = ? WHERE key = ?",
	}
}

// readTallies returns the running totals of key that expire after an instant, and the reset that was read with them. A reset
// can't be read without totals, and has no effect then.
func (s *Store) readTallies(
	ctx context.Context, key []byte, level gocql.Consistency, q *store.Query,
) ([]store.Count, store.Instant, error) {
	r := &keyRead{key: key, after: q.ExpireAfter}
	if err := s.read(ctx, s.laneOf(key, q.Span, level).ofTallies(), r); err != nil {
		return nil, 0, err
	}
	return r.counts, r.reset, nil
}

// readTally reads running totals by a request of its own.
func (s *Store) readTally(ctx context.Context, l lane, r *keyRead) error {
	query := s.session.Query(tallyTables[l.span].unread, r.key, int64(r.after)).WithContext(ctx).Consistency(l.level)
	return s.scanTallies(query, func([]byte) *keyRead { return r })
}

// readTalliesTogether is readTogether for running totals. It reads from the earliest bound of all items, and each item takes
// its own part of the answer.
func (s *Store) readTalliesTogether(ctx context.Context, l lane, items []*item[*keyRead]) {
	after := store.Distant
	keys := make([][]byte, 0, len(items))
	found := make(map[string]*keyRead, len(items))
	for _, r := range items {
		after = min(after, r.request.after)
		keys = append(keys, r.request.key)
		found[string(r.request.key)] = new(keyRead)
	}
	query := s.session.Query(tallyTables[l.span].all, keys, int64(after)).WithContext(ctx).Consistency(l.level).RoutingKey(keys[0])
	if err := s.scanTallies(query, func(key []byte) *keyRead { return found[string(key)] }); err != nil {
		apart(items, func(r *item[*keyRead]) { r.err = s.readTally(ctx, l, r.request) })
		return
	}
	for _, r := range items {
		r.request.take(found[string(r.request.key)])
	}
}

// take adds those running totals of r's key in read that r asked for.
func (r *keyRead) take(read *keyRead) {
	r.reset = read.reset
	for _, c := range read.counts {
		if c.Expires > r.after {
			r.counts = append(r.counts, c)
		}
	}
}

// scanTallies adds each row of query to the keyRead that into returns for the row's key.
func (s *Store) scanTallies(query *gocql.Query, into func(key []byte) *keyRead) error {
	rows := s.repeated(query).Iter()
	var key []byte
	var expires, start, epoch, units, resetAt int64
	var id limitName
	var writer gocql.UUID
	for rows.Scan(&key, &expires, &id, &start, &epoch, &writer, &units, &resetAt) {
		r := into(key)
		r.reset = store.Instant(resetAt)
		r.counts = append(r.counts, store.Count{
			Limit: policy.LimitID(id), Start: store.Instant(start), Expires: store.Instant(expires),
			Epoch: store.Instant(epoch), Units: units, Row: store.EventID(writer),
		})
	}
	return rows.Close()
}

// putEntries returns the requests to store w's running totals.
func putEntries(key []byte, w *store.Write) []gocql.BatchEntry {
	entries := make([]gocql.BatchEntry, len(w.Put))
	for i := range w.Put {
		t := &w.Put[i]
		entries[i] = gocql.BatchEntry{Stmt: tallyTables[w.Span].put, Idempotent: true, Args: []any{
			key, int64(t.Expires), string(t.Limit), int64(t.Start), int64(t.Epoch), gocql.UUID(t.Row), t.Units, whole(t.TTL), t.Stamp,
		}}
	}
	return entries
}

func (s *Store) resetTallies(ctx context.Context, key []byte, level gocql.Consistency, w *store.Write) error {
	at := int64(w.Reset)
	query := s.session.Query(tallyTables[w.Span].reset, whole(w.ResetTTL), at*microsPerMilli, at, key)
	return s.exec(query.WithContext(ctx).Consistency(level))
}
