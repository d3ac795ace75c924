package members

import (
	"bytes"
	"context"
	"errors"
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

// countTables are the tables with counts under keys, and how long their rows may affect decisions: two windows, and an hour
// because clocks differ. If a cell's write is unfinished when its table is read, the owner's first conditional write of the
// key finds the cell.
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
	{"cells", 2*policy.MaxWindow + time.Hour},
}

const (
	lookPage  = 1000    // keys in one read, which takes a node a few milliseconds
	leastPage = 50      // keys in one read if a node is too busy for more
	lookRest  = 9       // the pause after a page, as a multiple of the page's time, so that nodes spend a tenth of their time on this
	maxLook   = 1 << 24 // most keys of all tables; with more, new keys are read instead until windows have ended
)

// LookThrough calls found for each key with counted units, of all namespaces. It finds all keys of writes that were
// acknowledged at LOCAL_QUORUM before the call. It is a cluster.LookThrough.
func (m *Members) LookThrough(ctx context.Context, found func(slot int, key seen.Hash, until time.Time)) error {
	c, err := m.reach()
	if err != nil {
		return err
	}
	keys := 0
	for _, table := range countTables {
		err := inPages(ctx, func(size int, after []byte) (next []byte, err error) {
			// Each page has a query of its own, as the driver counts a query's attempts over all its pages.
			rows := c.Config.Repeatable(c.Session.Query("SELECT DISTINCT key FROM " + table.name).WithContext(ctx).
				Consistency(gocql.LocalQuorum).PageSize(size).PageState(after)).Iter()
			next = bytes.Clone(rows.PageState())
			until := time.Now().Add(table.life)
			var key []byte
			for range rows.NumRows() {
				if !rows.Scan(&key) {
					break
				}
				if keys++; len(key) == store.KeySize {
					k := store.KeyFrom([store.KeySize]byte(key))
					a, b := k.Rest()
					found(cluster.SlotOf(k.Prefix()), seen.Hash{A: a, B: b}, until)
				}
			}
			if err := rows.Close(); err != nil {
				return nil, conn.Unavailable("looking through "+table.name, err)
			}
			if keys > maxLook {
				return nil, fmt.Errorf("%w: more than %d", cluster.ErrTooManyKeys, maxLook)
			}
			return next, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inPages reads one page after the other, each from the end of the one before. If there is no answer, it tries smaller pages.
func inPages(ctx context.Context, read func(size int, after []byte) (next []byte, err error)) error {
	var after []byte
	for size := lookPage; ; {
		began := time.Now()
		next, err := read(size, after)
		switch {
		case errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil && size > leastPage:
			size = max(leastPage, size/10)
		case err != nil || len(next) == 0:
			return err
		default:
			after = next
		}
		if err := clock.Pause(ctx, lookRest*time.Since(began)); err != nil {
			return err
		}
	}
}
