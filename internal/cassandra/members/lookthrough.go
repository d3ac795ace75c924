package members

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// countTables are the tables that counts are kept in under keys, but for those of cells, and for how long
// what they hold may matter: two windows, and an hour for clocks that differ.
var countTables = []struct {
	name string
	life time.Duration
}{
	{"events_hour", 3 * time.Hour},
	{"events_day", 49 * time.Hour},
	{"events_month", 2*policy.MaxWindow + time.Hour},
	{"tallies_hour", 3 * time.Hour},
	{"tallies_day", 49 * time.Hour},
	{"tallies_month", 2*policy.MaxWindow + time.Hour},
	{"counters", 2*policy.MaxWindow + time.Hour},
}

const (
	lookPage = 5000    // keys that are read at once
	lookRest = 1       // times as long as a page took, before the next: callers wait for the same nodes
	maxLook  = 1 << 20 // keys of all tables; beyond, new keys are read instead until windows are over
)

// LookThrough tells found each key that something is counted for, whatever the namespace: all that was
// acknowledged at LOCAL_QUORUM before it was called. It is a cluster.LookThrough.
func (m *Members) LookThrough(ctx context.Context, found func(slice int, key seen.Hash, until time.Time)) error {
	c, err := m.reach()
	if err != nil {
		return err
	}
	keys := 0
	for _, table := range countTables {
		query := "SELECT DISTINCT key FROM " + table.name
		var next []byte
		for more := true; more; more = len(next) > 0 {
			began := time.Now()
			rows := c.Config.Repeatable(c.Session.Query(query).WithContext(ctx).Consistency(gocql.LocalQuorum).
				PageSize(lookPage).PageState(next)).Iter()
			next = append(next[:0:0], rows.PageState()...)
			until := time.Now().Add(table.life)
			var key []byte
			for range rows.NumRows() {
				if !rows.Scan(&key) {
					break
				}
				if keys++; len(key) == store.KeySize {
					of := store.KeyFrom([store.KeySize]byte(key))
					a, b := of.Rest()
					found(cluster.SliceOf(of.Prefix()), seen.Hash{A: a, B: b}, until)
				}
			}
			if err := rows.Close(); err != nil {
				return conn.Unavailable("looking through "+table.name, err)
			}
			if keys > maxLook {
				return fmt.Errorf("%w: more than %d", cluster.ErrTooManyKeys, maxLook)
			}
			if len(next) > 0 {
				if err := clock.Pause(ctx, lookRest*time.Since(began)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
