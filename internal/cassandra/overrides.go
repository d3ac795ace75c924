package cassandra

import (
	"cmp"
	"context"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests to the table of overrides. A TTL of 0 means that a row does not expire.
const (
	overridesInsert = "INSERT INTO overrides (part, key, value) VALUES (?, ?, (?, ?, ?)) USING TTL ? AND TIMESTAMP ?"
	overridesRead   = "SELECT key, value FROM overrides WHERE part IN ?"
)

const (
	overrideParts = 16
	overrideRows  = 500 // rows of one page
)

// keepEntry returns the write that keeps the override c for instances that start.
func keepEntry(c *store.Change) gocql.BatchEntry {
	ttl := whole(longestChange)
	if c.Stays() {
		ttl = 0
	}
	key := c.Key.Bytes()
	return gocql.BatchEntry{Stmt: overridesInsert, Idempotent: true, Args: []any{
		int(key[0]) % overrideParts, key, gocql.UUID(c.ID), int64(c.Until), c.Details, ttl, gocql.UUID(c.ID).Time().UnixMicro(),
	}}
}

// Overrides returns the latest override of each key, including recent ones that have an end.
func (s *Store) Overrides(ctx context.Context, level policy.Level) ([]store.Change, error) {
	consistency, err := levelOf(cmp.Or(level, s.config.Consistency.Read))
	if err != nil {
		return nil, err
	}
	parts := make([]int, overrideParts)
	for i := range parts {
		parts[i] = i
	}
	query := s.session.Query(overridesRead, parts).WithContext(ctx).Consistency(consistency).PageSize(overrideRows)
	rows := s.repeated(query).Iter()
	var changes []store.Change
	var key []byte
	var id gocql.UUID
	var until int64
	var details string
	for rows.Scan(&key, &id, &until, &details) {
		if c, ok := changeOf(id, string(store.ChangeOverride), key, until, 0); ok {
			c.Details = details
			changes = append(changes, c)
		}
	}
	if err := rows.Close(); err != nil {
		return nil, conn.Unavailable("reading overrides", err)
	}
	return changes, nil
}
