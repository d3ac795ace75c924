package limiter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// inRows returns a policy of one limit whose window is counted in running totals.
func inRows(algorithm string, limit int64, window time.Duration) policy.Policy {
	p := policyOf(algorithm, limit, window)
	p.Counting = policy.CountingRows
	return p
}

// total returns the running total that f was last asked to store.
func (f *fakeStore) total(t *testing.T) store.Tally {
	t.Helper()
	w := f.last()
	if len(w.Put) != 1 || len(w.Add) > 0 {
		t.Fatalf("%+v stores no running total", w)
	}
	return w.Put[0]
}

// Units that do not fit are taken back by the very next write, and that write says all that
// this instance has counted.
func TestTotalsAreTakenBackAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, inRows("fixed-window", 2, time.Hour))
		began := time.Now()
		for range 2 {
			mustTake(t, e)
		}
		first := store.total(t)
		if d := mustTake(t, e); d.Allowed || d.Used != 2 {
			t.Errorf("%+v", d)
		}
		last := store.total(t)
		if last.Units != 2 || last.Row != first.Row || last.Stamp <= first.Stamp {
			t.Errorf("%+v after %+v: want the same row, later, and 2 units again", last, first)
		}
		if time.Since(began) > 0 {
			t.Errorf("it waited for %v", time.Since(began))
		}
	})
}

// A total whose write failed is corrected by the next one, whether it was stored or not.
func TestNextTotalMakesUpForALostOne(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "not stored": false} {
		bubble(t, name, func(t *testing.T) {
			s := newFakeStore()
			e := newEngine(t, s, 0, inRows("fixed-window", 5, time.Hour))
			mustTake(t, e)
			s.onWrite = func(w *store.Write) error {
				if stored {
					_ = s.Store.Write(context.Background(), w)
				}
				return store.ErrUnavailable
			}
			for range 3 {
				if _, err := e.Take(t.Context(), somebody); !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("error %v", err)
				}
			}
			s.onWrite = nil
			if d := mustTake(t, e); d.Used != 2 || !d.Allowed {
				t.Errorf("%+v: want 2 used", d)
			}
			if total := s.total(t); total.Units != 2 {
				t.Errorf("the total is %d, want 2", total.Units)
			}
		})
	}
}

// A total that was stored before its read failed is taken back once, whatever the read's error
// says: that nothing is stored, a read may say of itself.
func TestTotalOfAFailedReadIsTakenBackOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, inRows("fixed-window", 5, time.Hour))
		mustTake(t, e)
		s.afterRead = func(*store.State) error { return errors.Join(store.ErrUnavailable, store.ErrNotStored) }
		_, err := e.Take(t.Context(), somebody)
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v: want one that may be recorded", err)
		}
		s.afterRead = nil
		if d := mustTake(t, e); d.Used != 2 || s.total(t).Units != 2 {
			t.Errorf("%d used, and a total of %d; want 2", d.Used, s.total(t).Units)
		}
	})
}

// Without another request, what a failed take may have stored is taken back all the same.
func TestLostTotalIsTakenBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		policy := inRows("fixed-window", 2, time.Hour)
		e, other := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
		running(t, e)
		s.onWrite = func(w *store.Write) error {
			_ = s.Store.Write(context.Background(), w)
			return store.ErrUnavailable
		}
		for range 2 {
			_, _ = e.Take(t.Context(), somebody)
		}
		s.set(func() { s.onWrite = nil })
		time.Sleep(5 * time.Second)
		for range 2 {
			if d := mustTake(t, other); !d.Allowed {
				t.Errorf("%+v", d)
			}
		}
	})
}

// A write of which nothing was stored leaves the total as it was: taking it back twice
// would make room for what was admitted.
func TestTotalIsNotLoweredTwice(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		policy := inRows("fixed-window", 3, time.Hour)
		e, other := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
		for range 3 {
			mustTake(t, e)
		}
		if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for range 2 { // the first is counted under the wrong epoch, and once more under the right one
			s.onWrite = func(w *store.Write) error {
				if w.Put[0].Epoch == 0 {
					return nil
				}
				return errors.Join(store.ErrUnavailable, store.ErrNotStored)
			}
			if _, err := e.Take(t.Context(), somebody); err == nil {
				t.Fatal("the write did not fail")
			}
		}
		s.onWrite = nil
		for i := range int64(3) {
			if d := mustTake(t, e); !d.Allowed || d.Used != i+1 {
				t.Errorf("%+v, want %d used", d, i+1)
			}
		}
		if d := mustTake(t, other); d.Allowed {
			t.Errorf("a fourth was admitted: %+v", d)
		}
	})
}

// A clock that goes ahead and back again forgets totals, and must not begin a row anew
// that says more already.
func TestTotalsSurviveAClockThatGoesBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		ahead := time.Duration(0)
		opts := limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Now: func() time.Time { return time.Now().Add(ahead) }}
		e := limiter.New(store, &opts)
		if err := e.SetPolicies([]policy.Policy{inRows("fixed-window", 4, time.Minute)}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustTake(t, e)
		}
		ahead = 5 * time.Minute
		mustTake(t, e)
		ahead = 0
		if d := mustTake(t, e); d.Used != 4 || !d.Allowed { // a window that is still to come counts as well
			t.Errorf("%+v: want 4 used", d)
		}
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("%+v: a fifth was admitted", d)
		}
	})
}

// Totals live for as long as they matter by the slowest clock, whatever the writer's own.
func TestTotalsLiveLongEnough(t *testing.T) {
	for algorithm, windows := range map[string]time.Duration{"fixed-window": 1, "sliding-tail": 2} {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			e := newEngine(t, store, 0, inRows(algorithm, 3, time.Minute))
			time.Sleep(50 * time.Second)
			mustTake(t, e)
			least := windows*time.Minute + 2*tolerance + timeout + time.Second
			if total := store.total(t); total.TTL < least || total.TTL > least+3*time.Second || total.TTL%time.Second != 0 {
				t.Errorf("it lives for %v, want %v and the margins", total.TTL, least)
			}
		})
	}
}

// So does a total that is stored before its window begins, as after a reset by a clock that is ahead.
func TestTotalsOfTheNextWindowLiveLongEnough(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const lead = 5 * time.Second
		s, policy := newFakeStore(), inRows("sliding-tail", 3, time.Minute)
		start := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(start.Add(-lead)))
		must(t, newEngine(t, s, lead, policy).Reset(t.Context(), somebody.Policy, somebody.Identifier))
		mustTake(t, newEngine(t, s, 0, policy))
		least := lead + 2*time.Minute + 2*tolerance + timeout + time.Second
		if total := s.total(t); total.Start != store.InstantOf(start) || total.TTL < least || total.TTL > least+3*time.Second {
			t.Errorf("stored %v before its window, %+v, want it to live for %v and the margins", lead, total, least)
		}
	})
}

// A read that misses this instance's own total, against all promises, admits nothing.
func TestTotalThatIsNotReadAdmitsNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		in := newFakeStore()
		e := newEngine(t, in, 0, inRows("fixed-window", 3, time.Hour))
		in.afterRead = func(s *store.State) error { s.Counts = nil; return nil }
		failed := (*count.StoreError)(nil)
		if d, err := e.Take(t.Context(), somebody); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%+v, error %v", d, err)
		}
	})
}

// Units that another instance counted are refunded by a row of one's own, a store timeout after
// they were counted at the soonest.
func TestTotalsOfOthersAreRefunded(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		policy := inRows("fixed-window", 2, time.Hour)
		e, other := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
		running(t, other)
		time.Sleep(time.Second)
		answer, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Refund(t.Context(), answer.Receipt); err != nil {
			t.Fatal(err)
		}
		store.set(func() {
			for _, w := range store.writes {
				if len(w.Put) > 0 && w.Put[0].Units != 1 {
					t.Errorf("%+v at once: a read that is under way could see it and miss what it gives back", w)
				}
			}
		})
		time.Sleep(2 * timeout)
		if total := store.total(t); total.Units != -1 {
			t.Errorf("%+v: want one unit less", total)
		}
		for i := range int64(2) {
			if d := mustTake(t, e); d.Used != i+1 || !d.Allowed {
				t.Errorf("%+v: want %d used", d, i+1)
			}
		}
	})
}

// A read that shows an earlier total of this instance than it has stored counts the
// later one.
func TestOwnTotalIsKnownBetterThanRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		in := newFakeStore()
		e := newEngine(t, in, 0, inRows("fixed-window", 3, time.Hour))
		mustTake(t, e)
		in.afterRead = func(s *store.State) error { s.Counts[0].Units = 1; return nil }
		for i := range int64(2) {
			if d := mustTake(t, e); !d.Allowed || d.Used != i+2 {
				t.Errorf("%+v, want %d used", d, i+2)
			}
		}
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("a fourth was admitted: %+v", d)
		}
	})
}

// A total that is to be lowered is said until it is stored.
func TestTotalIsSaidUntilItIsStored(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, inRows("fixed-window", 2, time.Hour))
		running(t, e)
		var writes atomic.Int32
		s.onWrite = func(w *store.Write) error {
			n := writes.Add(1)
			if n == 1 {
				_ = s.Store.Write(context.Background(), w)
			}
			if n <= 3 {
				return store.ErrUnavailable
			}
			return nil
		}
		_, _ = e.Take(t.Context(), somebody)
		time.Sleep(30 * time.Second)
		if total := s.total(t); writes.Load() != 4 || total.Units != 0 {
			t.Errorf("%+v by write %d: want it taken back by the fourth", total, writes.Load())
		}
	})
}

// Totals are kept beside others that live as long.
func TestTotalsAreKeptBySpan(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		for window, want := range map[time.Duration]store.Span{
			time.Minute: store.SpanHour, 2 * time.Hour: store.SpanDay, 48 * time.Hour: store.SpanMonth,
		} {
			p := inRows("fixed-window", 2, time.Second)
			p.Limits = append(p.Limits, policy.Limit{Name: "longer", Algorithm: "fixed-window", Limit: 5, Window: window})
			mustTake(t, newEngine(t, s, 0, p))
			if w := s.last(); w.Span != want || len(w.Put) != 2 || s.reads[len(s.reads)-1].Span != want {
				t.Errorf("%v: %+v, want span %v", window, w, want)
			}
		}
	})
}

// A unit that may not have been stored is not given back by another row when the clock goes
// far ahead before it fails: that would make room for what others have counted.
func TestUnknownUnitWhileTheClockIsWrong(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s, p := newFakeStore(), inRows("fixed-window", 3, time.Minute)
		var ahead atomic.Int64
		e := limiter.New(s, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout,
			Now:    func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			Skewed: func() bool { return ahead.Load() > 0 },
		})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		s.set(func() {
			s.onWrite = func(*store.Write) error {
				ahead.Store(int64(time.Hour))
				return errLost
			}
		})
		_, err := e.Take(t.Context(), somebody)
		wantRecorded(t, err, count.RecordedUnknown)
		s.set(func() { s.onWrite = nil })
		ahead.Store(0)
		running(t, e)
		time.Sleep(5 * time.Second)
		other := newEngine(t, s, 0, p)
		for range 3 {
			mustTake(t, other)
		}
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("%+v: the fourth of 3", d)
		}
	})
}
