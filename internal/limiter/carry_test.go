package limiter_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// carried calls test 20 s before a window ends, with engines over a policy in rows that
// counts ahead from the first unit.
func carried(t *testing.T, test func(t *testing.T, store *fakeStore, e, other *limiter.Engine)) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Minute)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		time.Sleep(40 * time.Second)
		test(t, store, e, other)
	})
}

// earlyWindows is a policy of fixed windows that counts ahead as carried's does.
func earlyWindows() limiter.Policy {
	policy := earlyRows(time.Minute)
	policy.Limits[0].Algorithm = "fixed-window"
	return policy
}

// nearEnd sleeps until a moment before a window of a minute ends.
func nearEnd(d time.Duration) { time.Sleep(time.Until(nextMinute().Add(-d))) }

func nextMinute() time.Time { return time.Now().Truncate(time.Minute).Add(time.Minute) }

// Who was asked for in a window is answered by the lease in the next, as by the algorithm,
// and the store got one write for it.
func TestLeaseGoesOnInTheNextWindow(t *testing.T) {
	carried(t, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		pure := limiter.NewMachine(policyOf("sliding-tail", 1000, time.Minute))
		take := func() limiter.Decision {
			t.Helper()
			want, d := pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1), mustTake(t, e)
			if d.Used != want.Used || d.ResetAfter != want.ResetAfter {
				t.Errorf("%d used, reset after %v; want %d, %v", d.Used, d.ResetAfter, want.Used, want.ResetAfter)
			}
			return d
		}
		for range 3 {
			take()
		}
		reads, writes := store.counts()
		nearEnd(100 * time.Millisecond)
		if readsNow, writesNow := store.counts(); readsNow != reads || writesNow != writes+1 {
			t.Errorf("%d reads and %d writes at the end of a window, want one write", readsNow-reads, writesNow-writes)
		}
		time.Sleep(time.Second)
		for range 10 {
			if d := take(); !d.Leased {
				t.Errorf("%+v: want a unit of the lease", d)
			}
		}
		if d := mustTake(t, e); d.Leased || d.Used != 11+16*59/60 {
			t.Errorf("%+v: want the store asked, and all that was counted in the window before", d)
		}
		if d := mustTake(t, e); !d.Leased {
			t.Errorf("%+v: want another lease", d)
		}
	})
}

// The same of a fixed window, and of the next: there only what went on is counted, for
// others as well, and nobody gets past the limit.
func TestLeaseOfAFixedWindowGoesOn(t *testing.T) {
	for name, calendar := range map[string]limiter.Calendar{"by length": "", "by the calendar": limiter.CalendarDay} {
		bubble(t, name, func(t *testing.T) {
			policy, end := earlyWindows(), time.Minute
			if calendar != "" {
				policy.Limits[0].Window, policy.Limits[0].Calendar, end = 0, calendar, 24*time.Hour
			}
			store := newFakeStore()
			e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
			time.Sleep(end - 10*time.Second)
			running(t, e)
			for range 4 {
				mustTake(t, e)
			}
			time.Sleep(10*time.Second - 100*time.Millisecond)
			denied := takeUntil(t, other, 1000, isDenied)
			time.Sleep(200 * time.Millisecond)
			if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 9 {
				t.Errorf("%d used at the start of a window, %v; want 9 that went on", d.Used, err)
			}
			own := takeUntil(t, e, 1000, func(d limiter.Decision) bool { return !d.Leased })
			if d := mustTake(t, e); own != 9 || d.Used != 11 { // between them the store was asked
				t.Errorf("%d of a lease that went on, and then %+v; want 9, and 11 used", own, d)
			}
			own += 2 + takeUntil(t, other, 1000, isDenied) + takeUntil(t, e, 1000, isDenied)
			if denied > 1000-4-9 || own > 1000 || own < 1000-2*16 {
				t.Errorf("%d beside 4 admitted in a window, %d in the next; want at most 987 and 1000", denied, own)
			}
		})
	}
}

// A clock that is beyond the tolerance begins nothing, though it decides nothing either:
// one that is behind would count in a window that others have filled, and one that is
// ahead hand out units of a window that has not begun.
func TestNothingGoesOnByAClockThatIsWrong(t *testing.T) {
	// during has e, which other counts beside, take units of a lease a moment before the end of a window.
	during := func(t *testing.T, before time.Duration, test func(store *fakeStore, off *atomic.Int64, e, other *limiter.Engine)) {
		policy := earlyWindows()
		store, off := newFakeStore(), new(atomic.Int64)
		e := limiter.New(store, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(*embedded.Store),
			Now:    func() time.Time { return time.Now().Add(time.Duration(off.Load())) },
			Skewed: func() bool { return off.Load() != 0 },
		})
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		other := toldEngine(t, store, policy)
		time.Sleep(600 * time.Millisecond) // so that leases are looked through then, in each second
		running(t, e)
		nearEnd(before)
		for range 4 {
			mustTake(t, e)
		}
		test(store, off, e, other)
	}
	behind, ahead := int64(-5*time.Second), int64(5*time.Second)
	overtaken := func(t *testing.T, off *atomic.Int64, e, other *limiter.Engine) {
		nearEnd(-20 * time.Millisecond)
		taken := takeUntil(t, other, 1001, isDenied)
		nearEnd(time.Minute - 5*time.Second + 100*time.Millisecond)
		off.Store(0)
		if taken += takeUntil(t, e, 1001, isDenied); taken > 1000 {
			t.Errorf("%d admitted in a window", taken)
		}
	}
	bubble(t, "behind", func(t *testing.T) {
		during(t, 15*time.Second, func(_ *fakeStore, off *atomic.Int64, e, other *limiter.Engine) {
			nearEnd(10 * time.Second)
			off.Store(behind)
			overtaken(t, off, e, other)
		})
	})
	bubble(t, "behind meanwhile", func(t *testing.T) {
		during(t, 500*time.Millisecond, func(store *fakeStore, off *atomic.Int64, e, other *limiter.Engine) {
			store.set(func() {
				store.onWrite = func(*limiter.Write) error {
					store.set(func() { store.onWrite = nil })
					off.Store(behind)
					nearEnd(-40 * time.Millisecond)
					return nil
				}
			})
			overtaken(t, off, e, other)
		})
	})
	bubble(t, "ahead", func(t *testing.T) {
		during(t, 15*time.Second, func(_ *fakeStore, off *atomic.Int64, e, _ *limiter.Engine) {
			nearEnd(10 * time.Second)
			off.Store(ahead)
			nearEnd(3 * time.Second)
			off.Store(0)
			if d := mustTake(t, e); d.ResetAfter != 3*time.Second || d.Used != 5 {
				t.Errorf("%d used, reset after %v, 3s before the window ends; want 5", d.Used, d.ResetAfter)
			}
		})
	})
}

// What goes on in the next window counts there for others, too, before it is handed out.
func TestOthersCountWhatGoesOn(t *testing.T) {
	carried(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		for range 3 {
			mustTake(t, e)
		}
		nearEnd(100 * time.Millisecond)
		taken := takeUntil(t, other, 1000, isDenied)
		for range 20 {
			if mustTake(t, e).Allowed {
				taken++
			}
		}
		if taken > 1000-3-10 {
			t.Errorf("%d admitted beside 3, and 10 that are counted in the next window", taken)
		}
		time.Sleep(200 * time.Millisecond)
		for _, e := range []*limiter.Engine{e, other, e} {
			for range 100 {
				if mustTake(t, e).Allowed {
					taken++
				}
			}
		}
		left := time.Until(nextMinute())
		if used := int(1000*left/time.Minute) - 1; taken+3 > 1000+1000-used {
			t.Errorf("%d admitted after %v of a window", taken+3, time.Minute-left)
		}
	})
}

// A write that ends too late for others to have counted it, or fails, leaves nothing to
// be handed out, nor counted for long.
func TestWhatIsTooLateDoesNotGoOn(t *testing.T) {
	for name, write := range map[string]func(*limiter.Write) error{
		"late":       func(*limiter.Write) error { time.Sleep(time.Until(nextMinute().Add(-tolerance))); return nil },
		"not stored": func(*limiter.Write) error { return errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored) },
		"in doubt":   func(*limiter.Write) error { return limiter.ErrUnavailable },
	} {
		t.Run(name, func(t *testing.T) {
			carried(t, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
				for range 3 {
					mustTake(t, e)
				}
				_, writes := store.counts()
				store.set(func() { store.onWrite = write })
				nearEnd(50 * time.Millisecond)
				store.set(func() { store.onWrite = nil })
				if _, now := store.counts(); now == writes {
					t.Error("nothing was written")
				}
				for i := range 13 {
					if d := mustTake(t, e); !d.Leased || d.Used != int64(4+i) {
						t.Fatalf("%+v: want unit %d, of the lease", d, 4+i)
					}
				}
				time.Sleep(2 * time.Second)
				if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 16*58/60 {
					t.Errorf("%+v, %v: want %d used", d, err, 16*58/60)
				}
				if d := mustTake(t, e); d.Leased || d.Used != 16*58/60+1 {
					t.Errorf("%+v: want the store asked, and %d used", d, 16*58/60+1)
				}
			})
		})
	}
}

// Nothing is written for the next window by which time others may not count it.
func TestNothingGoesOnOnceItIsTooLate(t *testing.T) {
	carried(t, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		for i := range 1500 {
			for range 3 {
				if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.Itoa(i))}); err != nil {
					t.Fatal(err)
				}
			}
		}
		next := nextMinute()
		var written, late atomic.Int64
		store.set(func() {
			store.onWrite = func(w *limiter.Write) error {
				if len(w.Put) > 0 && w.Put[0].Start == limiter.InstantOf(next) && w.Put[0].Units > 0 {
					written.Add(1)
					if time.Until(next) < 2*tolerance {
						late.Add(1)
					}
				}
				time.Sleep(timeout)
				return errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored)
			}
		})
		time.Sleep(22 * time.Second)
		if written.Load() < 500 || late.Load() > 0 {
			t.Errorf("%d writes, %d of them too late", written.Load(), late.Load())
		}
	})
}

// A lease that is spent before its window ends keeps what goes on, which is not handed out
// before, and which is nobody's who asks this instance.
func TestLeaseThatIsSpentGoesOn(t *testing.T) {
	carried(t, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		for range 3 {
			mustTake(t, e)
		}
		nearEnd(100 * time.Millisecond)
		for range 3 {
			if d := mustTake(t, e); !d.Leased {
				t.Errorf("%+v: want a unit of the lease", d)
			}
		}
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 6 {
			t.Errorf("%+v, %v: want 6 used by who has the lease", d, err)
		}
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 6+10+10 {
			t.Errorf("%+v, %v: want 26 used by another", d, err)
		}
		if d := mustTake(t, e); d.Leased || d.Used != 7+10 {
			t.Errorf("%+v: want the store asked, and 17 used", d)
		}
		time.Sleep(time.Second)
		reads, writes := store.counts()
		for range 10 {
			if d := mustTake(t, e); !d.Leased {
				t.Errorf("%+v: want a unit of the lease", d)
			}
		}
		if readsNow, writesNow := store.counts(); readsNow != reads || writesNow != writes {
			t.Errorf("%d reads and %d writes, want none", readsNow-reads, writesNow-writes)
		}
		time.Sleep(29 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 10+(17+1000/64)/2 {
			t.Errorf("%d used, %v; want %d", d.Used, err, 10+(17+1000/64)/2)
		}
	})
}

// A lease that is spent while it is being written what goes on leaves nothing to go on, nor
// anything charged where it was.
func TestLeaseThatIsSpentMeanwhileDoesNotGoOn(t *testing.T) {
	carried(t, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		for range 3 {
			mustTake(t, e)
		}
		next, began := limiter.InstantOf(nextMinute()), make(chan struct{})
		store.set(func() {
			store.onWrite = func(w *limiter.Write) error {
				if len(w.Put) > 0 && w.Put[0].Start == next && w.Put[0].Units > 0 {
					close(began)
					time.Sleep(timeout / 2)
				}
				return nil
			}
		})
		<-began
		for range 4 {
			mustTake(t, e)
		}
		time.Sleep(time.Until(nextMinute().Add(30 * time.Second)))
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != (7+1000/64)/2 {
			t.Errorf("%d used, %v; want %d", d.Used, err, (7+1000/64)/2)
		}
	})
}

// A lease that went on is as old as it was, begins with what was asked for known, and is
// no larger than a first one.
func TestLeaseThatGoesOn(t *testing.T) {
	inNextWindow := func(t *testing.T, e *limiter.Engine, takes int, after time.Duration) {
		t.Helper()
		for range takes {
			mustTake(t, e)
		}
		time.Sleep(time.Until(nextMinute().Add(after)))
	}
	t.Run("its age", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			inNextWindow(t, e, 3, 10*time.Second-time.Millisecond)
			if d := mustTake(t, e); !d.Leased {
				t.Errorf("%+v: want a unit of the lease", d)
			}
			time.Sleep(time.Millisecond)
			if d := mustTake(t, e); d.Leased {
				t.Errorf("%+v: want what others have counted read after half a minute", d)
			}
		})
	})
	t.Run("its demand", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			inNextWindow(t, e, 13, time.Second)
			if taken := takeUntil(t, e, 10, func(d limiter.Decision) bool { return !d.Leased }); taken != 3 {
				t.Errorf("%d units of the lease, want 3", taken)
			}
			if d := mustTake(t, e); !d.Leased {
				t.Errorf("%+v: want another lease", d)
			}
		})
	})
	t.Run("its size", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			inNextWindow(t, e, 150, time.Second)
			if taken := takeUntil(t, e, 100, func(d limiter.Decision) bool { return !d.Leased }); taken != 1000/64 {
				t.Errorf("%d units of the lease, want %d", taken, 1000/64)
			}
		})
	})
}

// What went on in a window of an hour, and nobody asks for, is given back after a minute.
func TestIdleLeaseThatGoesOnIsGivenBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		time.Sleep(time.Hour - 10*time.Second)
		for range 3 {
			mustTake(t, e)
		}
		time.Sleep(12 * time.Second)
		if d := mustTake(t, e); !d.Leased {
			t.Errorf("%+v: want a unit of the lease", d)
		}
		time.Sleep(63 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1+15 {
			t.Errorf("%d used, %v; want one beside 16 of the window before", d.Used, err)
		}
	})
}

// A clock that steps back into the window before dates nothing there that is counted in
// the next.
func TestLeaseThatGoesOnIsDatedInItsWindow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var back atomic.Int64
		store, policy := newFakeStore(), earlyRows(time.Minute)
		e := limiter.New(store, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(*embedded.Store),
			Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) },
		})
		must(t, e.SetPolicies([]limiter.Policy{policy}))
		running(t, e)
		time.Sleep(50 * time.Second)
		for range 3 {
			mustTake(t, e)
		}
		start := nextMinute()
		time.Sleep(time.Until(start))
		mustTake(t, e)
		back.Store(int64(time.Second))
		if d := mustTake(t, e); !d.Leased || d.DatedAt() != limiter.InstantOf(start) {
			t.Errorf("%+v: dated %v", d, d.DatedAt())
		}
	})
}

// What goes on is given back when nothing can be made of it any more: at a stop, for a
// policy that is not the lease's, and when a call fails that ended the lease.
func TestWhatGoesOnIsGivenBack(t *testing.T) {
	used := func(t *testing.T, e *limiter.Engine, want int64) {
		t.Helper()
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != want {
			t.Errorf("%d used, %v; want %d", d.Used, err, want)
		}
	}
	t.Run("stop", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, stays, stops *limiter.Engine) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = stops.Run(ctx) }()
			for range 3 {
				mustTake(t, stops)
			}
			nearEnd(time.Second)
			used(t, stays, 16+10)
			stop()
			<-ended
			used(t, stays, 3+10)
			time.Sleep(time.Second)
			used(t, stays, 12)
		})
	})
	t.Run("reload", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			for range 3 {
				mustTake(t, e)
			}
			nearEnd(time.Second)
			used(t, other, 16+10)
			policy := earlyRows(time.Minute)
			must(t, e.SetPolicies([]limiter.Policy{policy}))
			mustTake(t, e)
			time.Sleep(2*timeout - time.Millisecond)
			used(t, other, 3+10+1+1000/64)
		})
	})
	fails := func(t *testing.T, failure error) {
		carried(t, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			for range 3 {
				mustTake(t, e)
			}
			nearEnd(1500 * time.Millisecond)
			store.set(func() { store.onWrite = func(*limiter.Write) error { return failure } })
			if d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: somebody.Identifier, Cost: 50}); err == nil {
				t.Fatalf("%+v", d)
			}
			store.set(func() { store.onWrite = nil })
			time.Sleep(1400 * time.Millisecond)
			used(t, other, 3+10)
		})
	}
	t.Run("failure", func(t *testing.T) { fails(t, errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored)) })
	t.Run("doubt", func(t *testing.T) { fails(t, limiter.ErrUnavailable) })
	t.Run("no room", func(t *testing.T) {
		carried(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			for range 3 {
				mustTake(t, e)
			}
			nearEnd(1500 * time.Millisecond)
			takeUntil(t, other, 1000, isDenied)
			if _, err := other.Record(t.Context(), limiter.Demand{Policy: "p", Identifier: somebody.Identifier, Cost: 50}); err != nil {
				t.Fatal(err)
			}
			takeUntil(t, e, 4, isDenied)
			time.Sleep(time.Until(nextMinute().Add(30 * time.Second)))
			used(t, other, (1000-10+50)/2)
		})
	})
}

// A reset forgets what goes on as all else.
func TestResetForgetsWhatGoesOn(t *testing.T) {
	carried(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		for range 3 {
			mustTake(t, e)
		}
		nearEnd(1100 * time.Millisecond)
		must(t, other.Reset(t.Context(), somebody.Policy, somebody.Identifier))
		time.Sleep(1200 * time.Millisecond)
		if d := mustTake(t, e); d.Leased || d.Used != 1 {
			t.Errorf("%+v: want the first unit after a reset", d)
		}
	})
}

// So it does for who asks before news of it has come.
func TestResetThatIsReadForgetsWhatGoesOn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Minute)
		e := limiter.New(store, &limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Feed: embedded.New(nil)})
		must(t, e.SetPolicies([]limiter.Policy{policy}))
		running(t, e)
		time.Sleep(50 * time.Second)
		for range 3 {
			mustTake(t, e)
		}
		nearEnd(400 * time.Millisecond)
		must(t, toldEngine(t, store, policy).Reset(t.Context(), somebody.Policy, somebody.Identifier))
		if taken := takeUntil(t, e, 10, func(d limiter.Decision) bool { return !d.Leased }); taken != 3 {
			t.Errorf("%d units of the lease before a reset, want 3", taken)
		}
		time.Sleep(500 * time.Millisecond)
		if d := mustTake(t, e); d.Leased {
			t.Errorf("%+v: of a lease that a reset ended", d)
		}
	})
}

// Nothing goes on of keys that were asked for once, or too seldom for what is known of
// them to be of use, nor where it is not counted in rows of early leases.
func TestWhatDoesNotGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*limiter.Policy)
		takes  int
		at     time.Duration
	}{
		"as it is":        {takes: 2, at: 50 * time.Second},
		"once":            {takes: 1, at: 50 * time.Second},
		"long ago":        {takes: 10, at: 29 * time.Second},
		"seldom":          {takes: 2, at: 33 * time.Second},
		"late leases":     {takes: 16, at: 56 * time.Second, change: func(p *limiter.Policy) { p.Leases = limiter.LeasesLate }},
		"counters":        {takes: 10, at: 50 * time.Second, change: func(p *limiter.Policy) { p.Counting = limiter.CountingCounters }},
		"sliding windows": {takes: 10, at: 50 * time.Second, change: func(p *limiter.Policy) { p.Limits[0].Algorithm = "sliding-window" }},
		"several limits": {takes: 10, at: 50 * time.Second, change: func(p *limiter.Policy) {
			p.Limits = append(p.Limits, limiter.Limit{Algorithm: "sliding-tail", Limit: 5000, Window: time.Hour})
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			store, policy := newFakeStore(), earlyRows(time.Minute)
			if c.change != nil {
				c.change(&policy)
			}
			e := toldEngine(t, store, policy)
			running(t, e)
			time.Sleep(c.at)
			for range c.takes {
				mustTake(t, e)
			}
			_, before := store.counts()
			time.Sleep(time.Minute - c.at - 100*time.Millisecond)
			_, writes := store.counts()
			if goesOn := writes > before; goesOn != (name == "as it is") {
				t.Errorf("%d writes at the end of a window", writes-before)
			}
		})
	}
}
