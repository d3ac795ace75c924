package cassandra

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// sweeper deletes counters that have expired. One process of all does it at a
// time, by a lease; it goes over the whole ring, slice by slice.
type sweeper struct {
	session *gocql.Session
	config  *Config
	// time is nil, and nothing is deleted, where this instance's clock is beyond the
	// tolerance or no node has said what time it is.
	time atomic.Pointer[clusterTime]

	slices  atomic.Int64 // of the current pass that are done
	deleted atomic.Int64 // keys that counters were deleted of, since the start

	finished atomic.Int64 // when the last pass ended, in milliseconds; 0: none has
}

// The requests of a sweep. Reading at ONE may miss what is swept the next time;
// deleting by range needs no policy to know. A deletion is dated when what it deletes
// had to have expired: it hides nothing that is written later.
const (
	sweepRead   = "SELECT key, expires_at FROM counters WHERE token(key) >= ? AND token(key) <= ? PER PARTITION LIMIT 1"
	sweepDelete = "DELETE FROM counters WHERE key = ? AND expires_at < ?"
)

const (
	sweepLease    = "sweep"
	sweepLeaseTTL = time.Minute
	sweepSlices   = 1024            // of the ring in one pass
	sweepPause    = 2 * time.Second // between slices: a pass takes some 34 minutes
	sweepRows     = 500             // of one page
	sweepTimeout  = 20 * time.Second
	// sweepAge is how long counters must have expired. A slow write of a counter
	// that was deleted would bring back garbage; an hour later there is none.
	sweepAge = time.Hour
)

// Sweeps says how far the sweeper is.
type Sweeps struct {
	Progress float64   // of the current pass, 0 to 1; 0 where another instance sweeps
	Deleted  int64     // keys that counters were deleted of, since this process started
	Finished time.Time // when the last pass ended; zero: none of this instance's has
}

// Sweeps returns how far this instance's sweeper is.
func (s *Store) Sweeps() Sweeps {
	sweeps := Sweeps{Progress: float64(s.sweeper.slices.Load()) / sweepSlices, Deleted: s.sweeper.deleted.Load()}
	if at := s.sweeper.finished.Load(); at != 0 {
		sweeps.Finished = time.UnixMilli(at)
	}
	return sweeps
}

// errNoTime is that of a sweep that must not be.
var errNoTime = errors.New("the cluster's time is not known well enough to say what has expired")

// Sweep goes over the whole table once, without pauses and without the lease.
func (s *Store) Sweep(ctx context.Context) error {
	now, ok := s.sweeper.time.Load().now()
	if !ok {
		return errNoTime
	}
	for i := range sweepSlices {
		if err := s.sweeper.slice(ctx, i, now); err != nil {
			return err
		}
	}
	return nil
}

// run sweeps while it holds the lease, until ctx ends. Whoever doesn't know the time
// leaves the lease to others.
func (w *sweeper) run(ctx context.Context) {
	holder := rand.Text()
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	level, _ := serialLevel(w.config.SerialConsistency) // Config.check has seen it
	for next := 0; ; {
		select {
		case <-ctx.Done():
			releaseLease(w.session, sweepLease, holder, level)
			return
		case <-tick.C:
		}
		now, ok := w.time.Load().now()
		if !ok {
			w.slices.Store(0)
			continue
		}
		held, err := takeLease(ctx, w.session, sweepLease, holder, sweepLeaseTTL, level)
		if err == nil && held {
			err = w.slice(ctx, next%sweepSlices, now)
			next++
			w.swept(next)
		} else if err == nil {
			w.slices.Store(0)
		}
		if err != nil && ctx.Err() == nil {
			w.config.Logger.Warn("sweeping counters failed; it will be tried again", "error", err)
		}
	}
}

// swept notes that as many slices as next were tried.
func (w *sweeper) swept(next int) {
	w.slices.Store(int64(next % sweepSlices))
	if next%sweepSlices == 0 {
		w.finished.Store(w.config.Now().UnixMilli())
	}
}

// slice deletes what expired long before now, the cluster's time, in the i-th part of
// the ring.
func (w *sweeper) slice(ctx context.Context, i int, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	const width = math.MaxUint64/sweepSlices + 1
	first := int64(math.MinInt64) + int64(i)*width
	expired := now.Add(-sweepAge).UnixMilli()
	rows := w.session.Query(sweepRead, first, first+(width-1)).WithContext(ctx).Consistency(gocql.One).PageSize(sweepRows).Iter()
	var key []byte
	var expiresAt int64
	for rows.Scan(&key, &expiresAt) {
		if expiresAt >= expired {
			continue
		}
		if err := w.delete(ctx, key, expired); err != nil {
			return fmt.Errorf("deleting expired counters: %w", err)
		}
		key = nil
	}
	if err := rows.Close(); err != nil {
		return fmt.Errorf("looking for expired counters: %w", err)
	}
	return nil
}

func (w *sweeper) delete(ctx context.Context, key []byte, expired int64) error {
	level := levels[w.config.Consistency.Write]
	query := w.session.Query(sweepDelete, key, expired).WithTimestamp(expired * microsPerMilli) // which CQL has no words for, of counters
	if err := query.WithContext(ctx).Consistency(level).Idempotent(true).Exec(); err != nil {
		return err
	}
	w.deleted.Add(1)
	return nil
}
