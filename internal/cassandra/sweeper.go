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

// sweeper deletes counters that have expired. One process does so at a time, by a lease. It walks the whole ring, slice
// by slice.
type sweeper struct {
	session *gocql.Session
	config  *Config
	// time is nil, and nothing is deleted, if this instance's clock is beyond the tolerance or no node has returned its
	// time.
	time atomic.Pointer[clusterTime]

	slices  atomic.Int64 // number of slices of the current pass that are done
	deleted atomic.Int64 // number of keys with deleted counters since the start

	finished atomic.Int64 // the end of the last pass, in milliseconds; 0: none has ended
}

// Requests of a sweep. A read at ONE may miss rows, which the next sweep finds. The deletion of a range needs no knowledge of
// policies. Its timestamp is the bound of expiry, so that it does not hide later writes.
const (
	sweepRead   = "SELECT key, expires_at FROM counters WHERE token(key) >= ? AND token(key) <= ? PER PARTITION LIMIT 1"
	sweepDelete = "DELETE FROM counters WHERE key = ? AND expires_at < ?"
)

const (
	sweepLease    = "sweep"
	sweepLeaseTTL = time.Minute
	// sweepLeaseRenew leaves time for a slice and for a failed renewal.
	sweepLeaseRenew = 15 * time.Second
	sweepLeaseRetry = 2 * time.Second // interval of attempts by waiting processes

	sweepSlices   = 1024 // slices of the ring in one pass
	sweepHalvings = 10   // how often a slice may be halved: the smallest part is a millionth of the ring
	sweepRows     = 500  // rows of one page
	sweepTimeout  = 20 * time.Second
	// sweepDeletions is the number of concurrent deletions. One after the other, each waiting for a sync of the commit log,
	// would be a hundred a second, and new keys may be more.
	sweepDeletions = 32
)

// Sweeps is the progress of the sweeper.
type Sweeps struct {
	Progress float64   // done share of the current pass, 0 to 1; 0 if another instance sweeps
	Deleted  int64     // number of keys with deleted counters since this process started
	Finished time.Time // the end of this instance's last pass; zero: none has ended
}

// Sweeps returns the progress of this instance's sweeper.
func (s *Store) Sweeps() Sweeps {
	sweeps := Sweeps{Progress: float64(s.sweeper.slices.Load()) / sweepSlices, Deleted: s.sweeper.deleted.Load()}
	if at := s.sweeper.finished.Load(); at != 0 {
		sweeps.Finished = time.UnixMilli(at)
	}
	return sweeps
}

// errNoTime means that a sweep is not safe.
var errNoTime = errors.New("the cluster's time is not known well enough to say what has expired")

// Sweep sweeps the whole table once, without pauses and without the lease.
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

// run sweeps while it holds the lease, until ctx ends. A process that doesn't know the time does not take or renew the lease.
// Each process begins at a random slice, or the last slices would never be swept if processes lived shorter than a pass.
func (w *sweeper) run(ctx context.Context) {
	level, _ := conn.SerialLevel(w.config.SerialConsistency) // Config.Check has checked it
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

// sweepTurn is the state of the sweep lease as one process knows it.
type sweepTurn struct {
	session *gocql.Session
	holder  string
	level   gocql.SerialConsistency
	held    bool
	taken   bool // this process may have the lease
	asked   time.Time
}

// mine reports whether this process has the lease. It asks only at intervals, as taking a lease is a compare-and-set.
func (t *sweepTurn) mine(ctx context.Context) (held bool, err error) {
	every := sweepLeaseRetry
	if t.held {
		every = sweepLeaseRenew
	}
	if time.Since(t.asked) < every {
		return t.held, nil
	}
	t.held, err = lease.Take(ctx, t.session, sweepLease, t.holder, sweepLeaseTTL, t.level)
	t.asked, t.taken = time.Now(), t.held || err != nil // after an error this process may have the lease
	return t.held, err
}

// end releases the lease, so that others can sweep.
func (t *sweepTurn) end() {
	if t.taken {
		lease.Release(context.Background(), t.session, sweepLease, t.holder, t.level)
	}
}

// swept notes that this number of slices has been tried.
func (w *sweeper) swept(next int) {
	w.slices.Store(int64(next % sweepSlices))
	if next%sweepSlices == 0 {
		w.finished.Store(w.config.Now().UnixMilli())
	}
}

// slice deletes the counters in the i-th part of the ring that expired SweepAge before now, which is the cluster's time.
func (w *sweeper) slice(ctx context.Context, i int, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	const width = math.MaxUint64/sweepSlices + 1
	first := int64(math.MinInt64) + int64(i)*width
	return w.part(ctx, first, first+(width-1), now.Add(-w.config.SweepAge).UnixMilli(), sweepHalvings)
}

// part deletes the counters in the part of the ring from first to last that expired before the instant expired. Deleted rows
// remain as tombstones for gc_grace, and a node refuses to walk over too many of them in one request. Then part reads the two
// halves.
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

// tooLong reports whether a shorter read may succeed: the node refused to walk over so many tombstones, or did not finish in
// time. The protocol does not distinguish the refusal from other failures of a node.
func tooLong(err error) bool {
	_, refused := errors.AsType[*gocql.RequestErrReadFailure](err)
	_, late := errors.AsType[*gocql.RequestErrReadTimeout](err)
	return refused || late || errors.Is(err, gocql.ErrTimeoutNoResponse)
}

func (w *sweeper) delete(ctx context.Context, key []byte, expired int64) error {
	level := conn.Levels[w.config.Consistency.Write]
	query := w.session.Query(sweepDelete, key, expired).WithTimestamp(expired * microsPerMilli) // CQL has no syntax for it
	if err := query.WithContext(ctx).Consistency(level).Idempotent(true).Exec(); err != nil {
		return err
	}
	w.deleted.Add(1)
	return nil
}
