package cassandra

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/lease"
	"golang.org/x/sync/errgroup"
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
	// sweepLeaseRenew leaves time for a slice, and for a renewal that fails.
	sweepLeaseRenew = 15 * time.Second
	sweepLeaseRetry = 2 * time.Second // how often those who wait ask

	sweepSlices   = 1024 // of the ring in one pass
	sweepHalvings = 10   // of a slice at most: the smallest part is a millionth of the ring
	sweepRows     = 500  // of one page
	sweepTimeout  = 20 * time.Second
	// sweepDeletions is how many are under way at the same time. One by one, each waiting
	// for a sync of the commit log, they would be a hundred a second, and new keys may
	// come faster.
	sweepDeletions = 32
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

// run sweeps while it holds the lease, until ctx ends. A process that doesn't know the time
// leaves the lease to others. Each begins at a slice of its own: where processes end
// sooner than a pass does, the last slices would never be swept.
func (w *sweeper) run(ctx context.Context) {
	level, _ := conn.SerialLevel(w.config.SerialConsistency) // Config.check has seen it
	turn := sweepTurn{session: w.session, holder: rand.Text(), level: level}
	tick := time.NewTicker(w.config.SweepPause)
	defer tick.Stop()
	begin := mathrand.IntN(sweepSlices)
	for next := 0; ; {
		select {
		case <-ctx.Done():
			turn.end()
			return
		case <-tick.C:
		}
		now, ok := w.time.Load().now()
		if !ok {
			w.slices.Store(0)
			continue
		}
		held, err := turn.mine(ctx)
		if err == nil && held {
			err = w.slice(ctx, (begin+next)%sweepSlices, now)
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

// sweepTurn is whose turn it is to sweep, as far as one process knows.
type sweepTurn struct {
	session *gocql.Session
	holder  string
	level   gocql.SerialConsistency
	held    bool
	taken   bool // this process may have the lease
	asked   time.Time
}

// mine reports whether this process has the lease. It asks now and then only: taking a
// lease is compare-and-set.
func (t *sweepTurn) mine(ctx context.Context) (held bool, err error) {
	every := sweepLeaseRetry
	if t.held {
		every = sweepLeaseRenew
	}
	if time.Since(t.asked) < every {
		return t.held, nil
	}
	t.held, err = lease.Take(ctx, t.session, sweepLease, t.holder, sweepLeaseTTL, t.level)
	t.asked, t.taken = time.Now(), t.held || err != nil // without an answer it may be taken
	return t.held, err
}

// end lets others sweep.
func (t *sweepTurn) end() {
	if t.taken {
		lease.Release(context.Background(), t.session, sweepLease, t.holder, t.level)
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
	return w.part(ctx, first, first+(width-1), now.Add(-w.config.SweepAge).UnixMilli(), sweepHalvings)
}

// part deletes what expired before an instant in the part of the ring from first to
// last. What was deleted is still there for gc_grace, and a node refuses to walk over
// very much of it at once: it is asked for halves then.
func (w *sweeper) part(ctx context.Context, first, last, expired int64, halvings int) error {
	err := w.partAtOnce(ctx, first, last, expired)
	if halvings == 0 || !tooLong(err) {
		return err
	}
	middle := first + int64(uint64(last-first)/2)
	if err := w.part(ctx, first, middle, expired, halvings-1); err != nil {
		return err
	}
	return w.part(ctx, middle+1, last, expired, halvings-1)
}

func (w *sweeper) partAtOnce(ctx context.Context, first, last, expired int64) error {
	rows := w.session.Query(sweepRead, first, last).WithContext(ctx).Consistency(gocql.One).PageSize(sweepRows).Iter()
	deletions, ctx := errgroup.WithContext(ctx)
	deletions.SetLimit(sweepDeletions)
	var key []byte
	var expiresAt int64
	for rows.Scan(&key, &expiresAt) {
		if expiresAt >= expired {
			continue
		}
		old := key
		deletions.Go(func() error { return w.delete(ctx, old, expired) })
		key = nil
	}
	readErr := rows.Close()
	if err := deletions.Wait(); err != nil {
		return fmt.Errorf("deleting expired counters: %w", err)
	}
	if readErr != nil {
		return fmt.Errorf("looking for expired counters: %w", readErr)
	}
	return nil
}

// tooLong reports whether a read failed in a way that a shorter one may not: the node
// refused to walk over so many tombstones, or was not done in time. An older protocol
// does not tell the first from a node's other failures.
func tooLong(err error) bool {
	var refused *gocql.RequestErrReadFailure
	var late *gocql.RequestErrReadTimeout
	return errors.As(err, &refused) || errors.As(err, &late) || errors.Is(err, gocql.ErrTimeoutNoResponse)
}

func (w *sweeper) delete(ctx context.Context, key []byte, expired int64) error {
	level := conn.Levels[w.config.Consistency.Write]
	query := w.session.Query(sweepDelete, key, expired).WithTimestamp(expired * microsPerMilli) // which CQL has no words for, of counters
	if err := query.WithContext(ctx).Consistency(level).Idempotent(true).Exec(); err != nil {
		return err
	}
	w.deleted.Add(1)
	return nil
}
