package cassandra

import (
	"context"
	"time"
	"unique"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests to the table of counters have the policy's levels, like those to the tables of events. An addition is never sent
// twice, as it may have counted even if it timed out.
const (
	countersAdd = "UPDATE counters SET units = units + ? " +
		"WHERE key = ? AND expires_at = ? AND limit_id = ? AND window_start = ? AND epoch = ?"
	countersUnread = "SELECT expires_at, limit_id, window_start, epoch, units FROM counters WHERE key = ? AND expires_at > ?"
)

// resetLimitID marks the row of a key's reset: no limit has an empty id.
const resetLimitID = ""

// limitName is a limit's id in a row. Rows share the texts of ids, as there are few of them, so a remembered row has no text
// of its own.
type limitName policy.LimitID

var _ gocql.Unmarshaler = (*limitName)(nil)

// UnmarshalCQL implements gocql.Unmarshaler.
func (n *limitName) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if string(data) != string(*n) {
		*n = limitName(unique.Make(string(data)).Value())
	}
	return nil
}

// readCounts returns the counters of key that expire after an instant, and the latest reset that is kept with them.
func (s *Store) readCounts(
	ctx context.Context, key []byte, level gocql.Consistency, after store.Instant,
) (counts []store.Count, reset store.Instant, err error) {
	query := s.session.Query(countersUnread, key, int64(after)).WithContext(ctx).Consistency(level)
	rows := s.repeated(query).Iter()
	var expires, start, epoch, units int64
	var id limitName
	for rows.Scan(&expires, &id, &start, &epoch, &units) {
		if id == resetLimitID {
			reset = max(reset, store.Instant(epoch))
			continue
		}
		counts = append(counts, store.Count{
			Limit: policy.LimitID(id), Start: store.Instant(start), Expires: store.Instant(expires),
			Epoch: store.Instant(epoch), Units: units,
		})
	}
	return counts, reset, rows.Close()
}

// addCounts adds to one or several counters of key. They are in one partition, so one batch is enough. It is not atomic:
// after an error some additions may have counted.
func (s *Store) addCounts(ctx context.Context, key []byte, level gocql.Consistency, add []store.Count) error {
	if len(add) == 1 {
		query := s.session.Query(countersAdd, counterArgs(key, &add[0])...).WithContext(ctx).Consistency(level)
		began := time.Now()
		return s.stored(query.Exec(), query.Attempts(), began)
	}
	batch := s.batch(ctx, gocql.CounterBatch, level)
	for i := range add {
		batch.Query(countersAdd, counterArgs(key, &add[i])...)
	}
	return s.execBatch(batch)
}

// resetCounts writes the row of key's reset. It expires with the windows that it resets.
func (s *Store) resetCounts(ctx context.Context, key []byte, level gocql.Consistency, w *store.Write) error {
	marker := store.Count{Limit: resetLimitID, Start: w.Reset, Expires: w.Reset.Add(w.ResetTTL), Epoch: w.Reset, Units: 1}
	return s.addCounts(ctx, key, level, []store.Count{marker})
}

func counterArgs(key []byte, c *store.Count) []any {
	return []any{c.Units, key, int64(c.Expires), string(c.Limit), int64(c.Start), int64(c.Epoch)}
}
