package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// leased calls test for each way of counting windows, in a bubble, with a store whose
// engines hear of resets.
func leased(t *testing.T, test func(t *testing.T, store *fakeStore, policy limiter.Policy)) {
	for _, counting := range []limiter.Counting{limiter.CountingCounters, limiter.CountingRows} {
		bubble(t, string(counting), func(t *testing.T) {
			p := policyOf("sliding-tail", 1000, time.Minute)
			p.Counting = counting
			test(t, newFakeStore(), p)
		})
	}
}

// takeUntil takes from e until a decision says what done wants, at most most times.
func takeUntil(t *testing.T, e *limiter.Engine, most int, done func(limiter.Decision) bool) (taken int) {
	t.Helper()
	for range most {
		d := mustTake(t, e)
		if done(d) {
			return taken
		}
		taken++
	}
	t.Fatalf("%d takes, and none as wanted", most)
	return taken
}

func isLeased(d limiter.Decision) bool { return d.Leased }
func isDenied(d limiter.Decision) bool { return !d.Allowed }

// All of a large limit passes, one by one in what answers tell, for a tenth of the
// requests; and nothing more.
func TestLeasesSaveRequests(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e := toldEngine(t, store, policy)
		for i := range int64(1000) {
			if d := mustTake(t, e); !d.Allowed || d.Used != i+1 || d.Remaining != 999-i {
				t.Fatalf("take %d: %+v", i+1, d)
			}
		}
		if d := mustTake(t, e); d.Allowed || d.Used != 1000 {
			t.Errorf("one too many: %+v", d)
		}
		if reads, writes := store.counts(); reads+writes > 2*250 {
			t.Errorf("%d reads and %d writes for 1000 takes", reads, writes)
		}
	})
}

// Two instances that both take get all of the limit, and no more, whatever is leased.
func TestLeasesOfTwoInstances(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		one, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, one)
		running(t, other)
		admitted := 0
		for i := range 1500 {
			e := one
			if i%3 == 0 {
				e = other
			}
			if mustTake(t, e).Allowed {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) { // what comes back too late
			for _, e := range []*limiter.Engine{one, other} {
				if mustTake(t, e).Allowed {
					admitted++
				}
			}
		}
		if admitted != 1000 {
			t.Errorf("%d admitted, want 1000", admitted)
		}
	})
}

// What a process that is not asked any more has left is given back, after it was a
// sixteenth of the room at most.
func TestLeaseThatNobodyAsksForIsGivenBack(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		idle, busy := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, idle)
		taken := 0
		for range 40 {
			mustTake(t, idle)
			taken++
		}
		others := takeUntil(t, busy, 2000, isDenied)
		if left := 1000 - taken - others; left == 0 || left > 1000/16 {
			t.Errorf("%d are left to an instance that is not asked, want 1 to %d", left, 1000/16)
		}
		time.Sleep(8 * time.Second)
		more := takeUntil(t, busy, 2000, isDenied)
		for range 10 {
			if d := mustTake(t, idle); d.Allowed {
				t.Errorf("one too many: %+v", d)
			}
		}
		if taken+others+more != 1000 {
			t.Errorf("%d, %d and %d admitted, want 1000 together", taken, others, more)
		}
	})
}

// A stop gives back what is left at once.
func TestLeasesAreGivenBackAtAStop(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		stops, stays := toldEngine(t, store, policy), toldEngine(t, store, policy)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = stops.Run(ctx) }()
		taken := 1 + takeUntil(t, stops, 20, isLeased)
		stop()
		<-ended
		if d := mustTake(t, stays); d.Used != int64(taken+1) {
			t.Errorf("%+v after %d takes of another instance", d, taken)
		}
	})
}

// Who checks at the instance that has a lease sees what was taken, and other instances
// see what is left of it as used, too.
func TestChecksBesideALease(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		taken := int64(1 + takeUntil(t, e, 20, isLeased))
		d, err := e.Check(t.Context(), somebody)
		if err != nil || d.Used != taken || d.Remaining != 1000-taken {
			t.Errorf("%+v, %v: want %d used", d, err, taken)
		}
		d, err = other.Check(t.Context(), somebody)
		if err != nil || d.Used <= taken || d.Used > 2*taken {
			t.Errorf("%+v, %v: elsewhere, want a little more than %d used", d, err, taken)
		}
	})
}

// A reset ends leases, on the instance that makes it and on others.
func TestResetEndsLeases(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		running(t, other)
		for _, by := range []*limiter.Engine{e, other} {
			takeUntil(t, e, 100, isLeased)
			if err := by.Reset(t.Context(), "p", somebody.Identifier); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			for i := range int64(2) {
				if d := mustTake(t, e); d.Used != i+1 || d.Leased {
					t.Errorf("%+v: want %d used, and the store asked", d, i+1)
				}
			}
		}
	})
}

// A reset that comes while units are counted ahead leaves no lease of what it forgets.
func TestResetWhileALeaseIsMade(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e := toldEngine(t, store, policy)
		running(t, e)
		for range 4 {
			mustTake(t, e)
		}
		store.afterRead = func(*limiter.State) error {
			store.afterRead = nil
			return e.Reset(context.Background(), "p", somebody.Identifier)
		}
		mustTake(t, e)
		if d := mustTake(t, e); d.Leased || d.Used != 1 {
			t.Errorf("%+v: a lease from before the reset", d)
		}
	})
}

// A lease ends with its window, and what was left of it weighs as little as was said.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	test := func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e := toldEngine(t, store, policy)
		time.Sleep(58 * time.Second)
		takeUntil(t, e, 20, isLeased)
		time.Sleep(2 * time.Second)
		if d := mustTake(t, e); d.Leased || d.Used > 1+1000/64+1 {
			t.Errorf("%+v: a lease of the window before", d)
		}
	}
	t.Run("late", func(t *testing.T) { leased(t, test) })
	t.Run("early", func(t *testing.T) { early(t, test) })
}

// Nothing is taken ahead of small limits, of keys that are asked for a few times, under
// count: all, or while instances do not hear of each other.
func TestNoLeases(t *testing.T) {
	small, all := policyOf("fixed-window", 127, time.Minute), policyOf("fixed-window", 1000, time.Minute)
	all.Count = limiter.CountAll
	both := policyOf("fixed-window", 1000, time.Minute)
	both.Limits = append(both.Limits, limiter.Limit{Name: "log", Algorithm: "sliding-log", Limit: 1000, Window: time.Minute})
	log, off := policyOf("sliding-log", 1000, time.Minute), policyOf("fixed-window", 1000, time.Minute)
	off.Leases = limiter.LeasesOff
	for name, p := range map[string]limiter.Policy{"small": small, "all": all, "log": log, "both": both, "off": off} {
		bubble(t, name, func(t *testing.T) {
			e := toldEngine(t, newFakeStore(), p)
			for range 100 {
				if d := mustTake(t, e); d.Leased {
					t.Fatalf("%+v", d)
				}
			}
		})
	}
	bubble(t, "a few", func(t *testing.T) {
		store, p := newFakeStore(), policyOf("fixed-window", 1000, time.Minute)
		e, other := toldEngine(t, store, p), toldEngine(t, store, p)
		for range 4 {
			if d := mustTake(t, e); d.Leased {
				t.Errorf("%+v", d)
			}
		}
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 4 {
			t.Errorf("%+v, %v", d, err)
		}
	})
	bubble(t, "no news", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0, policyOf("fixed-window", 1000, time.Minute))
		for range 100 {
			if d := mustTake(t, e); d.Leased {
				t.Fatalf("%+v", d)
			}
		}
	})
}

// Units of a lease are given back by their receipts, once.
func TestLeasedUnitsAreRefunded(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e := toldEngine(t, store, policy)
		running(t, e)
		takeUntil(t, e, 20, isLeased)
		answer, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}})
		if err != nil || !answer.Leased {
			t.Fatalf("%+v, %v", answer, err)
		}
		time.Sleep(10 * time.Second)
		before, _ := e.Check(t.Context(), somebody)
		if err := e.Refund(t.Context(), answer.Receipt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if after, err := e.Check(t.Context(), somebody); err != nil || after.Used != before.Used-1 {
			t.Errorf("%d used after the refund, %d before, %v", after.Used, before.Used, err)
		}
	})
}

// A store that fails while units are counted ahead leaves nobody denied for them, as far
// as that can be known.
func TestLeaseOfAWriteThatFailed(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		taken := 1 + takeUntil(t, e, 100, isLeased)
		store.set(func() {
			store.afterRead = func(*limiter.State) error { return limiter.ErrUnavailable }
		})
		for range 100 { // what is left is handed out meanwhile
			if _, err := e.Take(t.Context(), somebody); err == nil {
				taken++
			}
		}
		store.set(func() { store.afterRead = nil })
		time.Sleep(10 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != int64(taken) {
			t.Errorf("%+v, %v: want %d used", d, err, taken)
		}
	})
}

// Units that others took while they were counted ahead are not handed out.
func TestLeaseIsNoMoreThanTheRoom(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		for range 4 {
			mustTake(t, e)
		}
		taken := 4 + 1 + takeUntil(t, other, 2000, func(d limiter.Decision) bool { return d.Used >= 998 })
		for range 20 {
			if mustTake(t, e).Allowed {
				taken++
			}
			if mustTake(t, other).Allowed {
				taken++
			}
		}
		if taken != 1000 {
			t.Errorf("%d admitted, want 1000", taken)
		}
	})
}

// Callers at the same time get all of the limit, and no more.
func TestLeasesUnderManyCallers(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		store.readTakes, store.writeTakes = time.Millisecond, time.Millisecond
		e := toldEngine(t, store, policy)
		allowed, failed := takeAtOnce(e, 3000)
		if allowed != 1000 || len(failed) > 0 {
			t.Errorf("%d admitted, want 1000; %d failed", allowed, len(failed))
		}
	})
}

// What was taken in one window says nothing of the next.
func TestNothingIsTakenAheadOfAFreshWindow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), policyOf("fixed-window", 1000, time.Minute)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		takeUntil(t, e, 20, isLeased)
		time.Sleep(time.Minute)
		mustTake(t, e)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1 {
			t.Errorf("%+v, %v: want 1 used", d, err)
		}
	})
}

// A policy that comes into force decides what an earlier one's lease was of.
func TestReloadEndsLeases(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e := toldEngine(t, store, policy)
		taken := 1 + takeUntil(t, e, 20, isLeased)
		policy.Limits[0].Limit = 5
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		if d := mustTake(t, e); d.Leased || d.Allowed {
			t.Errorf("%+v after %d takes", d, taken)
		}
	})
}

// Demands that fall together give back what was counted for them, and not what was
// counted ahead beside it.
func TestLeaseBesideDemandsThatFall(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		never := policyOf("fixed-window", 0, time.Minute)
		never.Name = "never"
		e, other := toldEngine(t, store, policy, never), toldEngine(t, store, policy, never)
		running(t, e)
		taken := 1 + takeUntil(t, e, 20, isLeased)
		for range 5 {
			both := []limiter.Demand{somebody, {Policy: "never", Identifier: somebody.Identifier}}
			if answer, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: both}); err != nil || answer.Allowed {
				t.Fatalf("%+v, %v", answer, err)
			}
		}
		for range 30 {
			mustTake(t, e)
			taken++
		}
		time.Sleep(10 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != int64(taken) {
			t.Errorf("%+v, %v: want %d used", d, err, taken)
		}
	})
}

// A write that failed leaves what was left of a lease to be given back.
func TestRestOfALeaseWhoseRefillFailed(t *testing.T) {
	for name, failure := range map[string]error{
		"not stored": errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored), "not known": limiter.ErrUnavailable,
	} {
		t.Run(name, func(t *testing.T) { restOfALease(t, failure) })
	}
}

func restOfALease(t *testing.T, failure error) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		taken := int64(1 + takeUntil(t, e, 20, isLeased))
		store.set(func() {
			store.onWrite = func(*limiter.Write) error { return failure }
		})
		if d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: somebody.Identifier, Cost: 50}); err == nil {
			t.Fatalf("%+v", d)
		}
		store.set(func() { store.onWrite = nil })
		time.Sleep(10 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != taken {
			t.Errorf("%+v, %v: want %d used", d, err, taken)
		}
	})
}
