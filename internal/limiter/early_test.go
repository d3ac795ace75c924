package limiter_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// early calls test as leased does, with a policy that counts ahead from the first unit.
func early(t *testing.T, test func(t *testing.T, store *fakeStore, policy limiter.Policy)) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		policy.Leases = limiter.LeasesEarly
		test(t, store, policy)
	})
}

// The first unit of a caller brings a few more, which other instances see as used; all of
// the limit passes, and nothing more.
func TestEarlyLeases(t *testing.T) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		if d := mustTake(t, e); d.Leased || d.Used != 1 {
			t.Errorf("first: %+v", d)
		}
		if d := mustTake(t, e); !d.Leased || d.Used != 2 {
			t.Errorf("second: %+v", d)
		}
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1+1000/64 {
			t.Errorf("%+v, %v: elsewhere, want %d used", d, err, 1+1000/64)
		}
		taken := 2
		for range 1100 {
			for _, e := range []*limiter.Engine{e, other} {
				if mustTake(t, e).Allowed {
					taken++
				}
			}
		}
		if taken != 1000 {
			t.Errorf("%d admitted, want 1000", taken)
		}
		if reads, writes := store.counts(); reads+writes > 450 {
			t.Errorf("%d reads and %d writes for 1000 units", reads, writes)
		}
	})
}

// An early lease that is too old to tell of others is not written anew: the next request
// reads, and sees what others have taken.
func TestEarlyLeaseIsReadAnew(t *testing.T) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		mustTake(t, e)
		seen := mustTake(t, other).Used
		time.Sleep(31 * time.Second)
		_, before := store.counts()
		if d := mustTake(t, e); d.Leased || d.Used != 2+seen-1000/64-1+1000/64 {
			t.Errorf("%+v: want the store asked, and what the other instance has counted", d)
		}
		if _, writes := store.counts(); writes != before {
			t.Errorf("%d writes for units that were counted already", writes-before)
		}
		if d := mustTake(t, e); !d.Leased {
			t.Errorf("%+v: what is left is not handed out", d)
		}
	})
}

// Nothing is kept of a key that others have taken nearly all of.
func TestNoEarlyLeaseOfAFullKey(t *testing.T) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		taken := 1 + takeUntil(t, other, 1000, func(d limiter.Decision) bool { return d.Used >= 900 })
		mustTake(t, e)
		time.Sleep(2 * time.Second) // counters are subtracted from later
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != int64(taken+1) {
			t.Errorf("%+v, %v: want %d used", d, err, taken+1)
		}
	})
}

// What nobody asks for is given back after a minute where the window is longer.
func TestEarlyLeaseIsGivenBack(t *testing.T) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		policy.Limits[0].Window = time.Hour
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		mustTake(t, e)
		time.Sleep(50 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used == 1 {
			t.Errorf("%+v, %v: given back too soon", d, err)
		}
		time.Sleep(14 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1 {
			t.Errorf("%+v, %v: want 1 used", d, err)
		}
	})
}

// A window that is over leaves a first unit in the next one, with a lease of its own.
func TestEarlyLeaseOfTheNextWindow(t *testing.T) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		policy.Limits[0].Algorithm = "fixed-window"
		e := toldEngine(t, store, policy)
		running(t, e)
		for range 3 {
			if d := mustTake(t, e); d.Leased || d.Used != 1 {
				t.Errorf("%+v: want the first of a window", d)
			}
			if d := mustTake(t, e); !d.Leased || d.Used != 2 {
				t.Errorf("%+v: want the second of a window", d)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Of requests that fail, and may be counted all the same, one at most leaves behind what
// was counted ahead with it.
func TestLeaseThatIsLostIsNotFollowedByAnother(t *testing.T) {
	for _, mode := range []limiter.LeaseMode{limiter.LeasesLate, limiter.LeasesEarly} {
		leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
			policy.Leases, policy.Limits[0].Window = mode, time.Hour
			e := toldEngine(t, store, policy)
			running(t, e)
			for range 100 {
				mustTake(t, e)
			}
			time.Sleep(2 * time.Minute) // what is left of the lease is given back
			store.set(func() {
				store.onWrite = func(w *limiter.Write) error {
					return cmp.Or(store.Store.Write(t.Context(), w), errLost)
				}
			})
			for range 10 {
				_, err := e.Take(t.Context(), somebody)
				wantRecorded(t, err, limiter.RecordedUnknown)
			}
			store.set(func() { store.onWrite = nil })
			time.Sleep(time.Minute)
			if got := used(t, toldEngine(t, store, policy), somebody); got > 100+10+1000/16 {
				t.Errorf("%s: used %d, want 100, and at most 10 that failed and one lease", mode, got)
			}
		})
	}
}
