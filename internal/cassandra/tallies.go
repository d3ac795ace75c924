package cassandra

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// tallyStatements are the requests to one table of running totals, at the policy's levels like those to the tables of
// events. A total has its writer's own stamp, so that the later of two wins, in any order of arrival.
type tallyStatements struct {
	put    string // repeatable
	unread string
	all    string // of several keys
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

// tallyRead is a read of one key's running totals, and its result.
type tallyRead struct {
	key    []byte
	after  store.Instant
	counts []store.Count
	reset  store.Instant
}

// readTallies returns the running totals of key that expire after an instant, and the reset that was read with them.
// Without totals a reset has no effect.
func (s *Store) readTallies(
	ctx context.Context, key []byte, level gocql.Consistency, q *store.Query,
) ([]store.Count, store.Instant, error) {
	r := &tallyRead{key: key, after: q.ExpireAfter}
	l := s.laneOf(key, q.Span, level)
	if err := s.tallies.do(ctx, l, r, 1, func(ctx context.Context) error { return s.readTally(ctx, l, r) }); err != nil {
		return nil, 0, err // a trip in progress may be writing to r
	}
	return r.counts, r.reset, nil
}

// readTally reads for r alone.
func (s *Store) readTally(ctx context.Context, l lane, r *tallyRead) error {
	query := s.session.Query(tallyTables[l.span].unread, r.key, int64(r.after)).WithContext(ctx).Consistency(l.level)
	return s.scanTallies(query, func([]byte) *tallyRead { return r })
}

// readTalliesTogether reads for all items by one request, with the earliest bound of all of them. Each takes its own
// part of the answer. If the request fails, each reads by itself.
func (s *Store) readTalliesTogether(ctx context.Context, l lane, items []*item[*tallyRead]) {
	after := store.Distant
	keys := make([][]byte, 0, len(items))
	readers := make(map[string][]*tallyRead, len(items))
	for _, r := range items {
		after = min(after, r.request.after)
		key := r.request.key
		if len(readers[string(key)]) == 0 {
			keys = append(keys, key)
		}
		readers[string(key)] = append(readers[string(key)], r.request)
	}
	query := s.session.Query(tallyTables[l.span].all, keys, int64(after)).WithContext(ctx).Consistency(l.level).RoutingKey(keys[0])
	found := make(map[string]*tallyRead, len(keys))
	err := s.scanTallies(query, func(key []byte) *tallyRead {
		if found[string(key)] == nil {
			found[string(key)] = new(tallyRead)
		}
		return found[string(key)]
	})
	if err != nil {
		apart(items, func(r *item[*tallyRead]) { r.err = s.readTally(ctx, l, r.request) })
		return
	}
	for key, read := range found {
		for _, r := range readers[key] {
			r.take(read)
		}
	}
}

// take adds the rows of read, of r's key, that r asked for.
func (r *tallyRead) take(read *tallyRead) {
	r.reset = read.reset
	for _, c := range read.counts {
		if c.Expires > r.after {
			r.counts = append(r.counts, c)
		}
	}
}

// scanTallies adds each row that query finds to the tallyRead that into returns for its key.
func (s *Store) scanTallies(query *gocql.Query, into func(key []byte) *tallyRead) error {
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
