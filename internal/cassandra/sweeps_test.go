package cassandra

import (
	"errors"
	"testing"
	"time"
)

// A pass is finished when every slice of the ring was visited.
func TestSweepsSayWhenAPassIsFinished(t *testing.T) {
	now := time.UnixMilli(1_772_452_800_000)
	store := &Store{}
	store.sweeper.config = &Config{Now: func() time.Time { return now }}
	for next := 1; next < sweepSlices; next++ {
		store.sweeper.swept(next)
	}
	if !store.Sweeps().Finished.IsZero() {
		t.Error("finished before the last slice")
	}
	store.sweeper.swept(sweepSlices)
	if got := store.Sweeps(); !got.Finished.Equal(now) || got.Progress != 0 {
		t.Errorf("after a whole pass: %+v", got)
	}
}

// An instance that does not know the cluster's time deletes nothing: it asks nobody.
func TestNoSweepWithoutTheClustersTime(t *testing.T) {
	store := &Store{} // without a session: a request would panic
	if err := store.Sweep(t.Context()); !errors.Is(err, errNoTime) {
		t.Errorf("before any answer: %v", err)
	}
	store.sweeper.time.Store(&clusterTime{was: time.Now(), at: time.Now().Add(-clusterTimeLasts)})
	if err := store.Sweep(t.Context()); !errors.Is(err, errNoTime) {
		t.Errorf("%v after the last answer: %v", clusterTimeLasts, err)
	}
}

// An instance that has the lease relies on that for a while, and so does one that has not: a
// slice of the ring costs no compare-and-set. The lease must not end meanwhile.
func TestLeaseToSweepIsAskedForNowAndThen(t *testing.T) {
	if sweepLeaseRenew+2*sweepTimeout >= sweepLeaseTTL {
		t.Errorf("a lease of %v may end within a slice of %v, or its renewal, after %v", sweepLeaseTTL, sweepTimeout, sweepLeaseRenew)
	}
	for _, c := range []struct {
		held bool
		ago  time.Duration
	}{{true, sweepLeaseRenew / 2}, {false, sweepLeaseRetry / 2}} {
		turn := sweepTurn{held: c.held, asked: time.Now().Add(-c.ago)} // without a session: a request would panic
		if held, err := turn.mine(t.Context()); err != nil || held != c.held {
			t.Errorf("%v after held was %v: %v, %v", c.ago, c.held, held, err)
		}
	}
}
