package limiter_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

const (
	rowsWindow  = 10 * time.Minute // of a log of which rows are counted ahead
	rowsAheadBy = 30 * time.Second
)

// rowsAhead is a policy of a log of which instances count rows ahead, of callers who come again.
func rowsAhead() limiter.Policy {
	policy := policyOf("sliding-log", 10, rowsWindow)
	policy.Leases = limiter.LeasesStanding
	return policy
}

// asked returns which of n takes of id asked the store, the first being 1, and how many were
// allowed.
func asked(t *testing.T, store *fakeStore, e *limiter.Engine, id limiter.Identifier, n int) (asking []int, allowed int) {
	t.Helper()
	for i := range n {
		reads, _ := store.counts()
		if takeOf(t, e, id).Allowed {
			allowed++
		}
		if now, _ := store.counts(); now > reads {
			asking = append(asking, i+1)
		}
	}
	return asking, allowed
}

// Of ten takes within a moment two ask the store of an instance that is alone: the first two are
// by the allowance, and others by rows that were counted with those before them.
func TestRowsAheadSaveRequests(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		if asking, allowed := asked(t, store, e, somebody.Identifier, 10); allowed != 10 || !slices.Equal(asking, []int{3, 7}) {
			t.Errorf("%d allowed, of which %v asked the store", allowed, asking)
		}
		if n := store.rowsAhead(); n != 6 {
			t.Errorf("%d rows ahead, want 6", n)
		}
		if d := mustTake(t, e); d.Allowed || d.Used != 10 {
			t.Errorf("%+v: want a denial", d)
		}
		if d := mustTake(t, other); d.Allowed {
			t.Errorf("%+v elsewhere: want a denial", d)
		}
	})
}

// Beside another instance nothing is counted ahead of the last fourth of a limit, and less of
// the rest. The eleventh is denied by what the other may have handed out.
func TestRowsAheadLeaveSomeToOthers(t *testing.T) {
	policy := rowsAhead()
	policy.Limits[0].Limit = 12
	standing(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		stand(t, other)
		if asking, allowed := asked(t, store, other, somebody.Identifier, 12); allowed != 10 || !slices.Equal(asking, []int{2, 6, 9, 10, 11}) {
			t.Errorf("%d allowed beside an allowance of two, of which %v asked the store", allowed, asking)
		}
		if allowed := takes(t, e, 12); allowed != 2 {
			t.Errorf("%d by the allowance that was left, want 2", allowed)
		}
	})
}

// An instance learns within a minute or so that it is no longer alone.
func TestRowsAheadOfWhoIsNoLongerAlone(t *testing.T) {
	for later, want := range map[time.Duration][]int{0: {3, 7, 10}, 65 * time.Second: {3, 6, 8, 9, 10}} {
		standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			running(t, other)
			stand(t, other)
			time.Sleep(later)
			takeOf(t, e, "whoever keeps it going")
			time.Sleep(2 * time.Second)
			if asking, _ := asked(t, store, e, somebody.Identifier, 10); !slices.Equal(asking, want) {
				t.Errorf("%v after another came, %v asked the store, want %v", later, asking, want)
			}
		})
	}
}

// An instance that makes the next period's allowance before another does is not alone by that.
func TestRowsAheadLateInAPeriod(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		stand(t, other)
		time.Sleep(time.Until(time.Now().Truncate(rowsWindow).Add(rowsWindow - 5*time.Second)))
		takeOf(t, e, "whoever keeps it going")
		time.Sleep(2 * time.Second)
		if asking, _ := asked(t, store, e, somebody.Identifier, 6); !slices.Equal(asking, []int{3, 6}) {
			t.Errorf("%v asked the store, want two rows ahead of the third", asking)
		}
	})
}

// Who comes seldom has no rows ahead, which nobody would ask for.
func TestNoRowsAheadOfWhoComesSeldom(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		for used := range int64(10) {
			if d := mustTake(t, e); !d.Allowed || d.Used != used+1 {
				t.Fatalf("%+v: want %d used", d, used+1)
			}
			time.Sleep(rowsAheadBy + time.Second)
		}
		if n := store.rowsAhead(); n > 0 {
			t.Errorf("%d rows ahead", n)
		}
	})
}

// rowsAhead returns how many rows were written that were dated ahead, as of now.
func (f *fakeStore) rowsAhead() (n int) {
	for _, w := range f.written() {
		for i := range w.Events {
			if w.Events[i].At > w.Events[0].At {
				n++
			}
		}
	}
	return n
}

// What is left of rows that were counted ahead denies others for as long as they may be handed
// out, and is removed then, or when the process ends.
func TestRowsAheadAreGivenBack(t *testing.T) {
	for name, end := range map[string]func(stop func()){
		"after a while": func(func()) { time.Sleep(rowsAheadBy + 5*time.Second) },
		"at a stop":     func(stop func()) { stop() },
	} {
		bubble(t, name, func(t *testing.T) {
			store := newFakeStore()
			e, other := toldEngine(t, store, rowsAhead()), toldEngine(t, store, rowsAhead())
			stop := runningUntil(t, e)
			stand(t, e)
			for range 3 {
				mustTake(t, e)
			}
			if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 4 {
				t.Errorf("%+v, %v: want the row of the third and three ahead", d, err)
			}
			end(stop)
			if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1 {
				t.Errorf("%+v, %v: want the row of the third alone", d, err)
			}
			if taken := takeUntil(t, other, 11, isDenied); taken != 7 {
				t.Errorf("%d beside a row and an allowance of two, want 7", taken)
			}
		})
	}
}

// A row that was counted ahead leaves the window no sooner than the event that it became, by
// whatever instance that is counted: it is dated when it is handed out at the latest.
func TestRowsAheadLeaveNoSooner(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		takes(t, e, 3)
		first := time.Now()
		time.Sleep(rowsAheadBy - time.Second)
		for range 2 {
			if d := mustTake(t, e); !d.Leased {
				t.Fatalf("%+v: want it by a row ahead", d)
			}
		}
		handedOut := time.Now()
		time.Sleep(time.Until(first.Add(rowsWindow + 2*tolerance + 5*time.Second))) // the third is gone, the fourth and fifth are not
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 2 {
			t.Errorf("%+v, %v: want both that were handed out later", d, err)
		}
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 2 {
			t.Errorf("%+v, %v: want both that were handed out later", d, err)
		}
		time.Sleep(time.Until(handedOut.Add(rowsWindow + 2*tolerance)))
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 0 {
			t.Errorf("%+v, %v: want none where it is known when they were handed out", d, err)
		}
		time.Sleep(rowsAheadBy)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 0 {
			t.Errorf("%+v, %v: want none", d, err)
		}
	})
}

// A row that is dated ahead lives as long as it counts.
func TestRowsAheadLiveLonger(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		takes(t, e, 3)
		for _, w := range store.written() {
			if least := rowsWindow + 2*tolerance + rowsAheadBy; len(w.Events) > 0 && w.Logs[0].TTL < least {
				t.Errorf("rows live for %v, and count for %v", w.Logs[0].TTL, least)
			}
		}
	})
}

// A row that is dated now or before is handed out to nobody: it would leave the window too soon.
func TestRowsAheadAreNotHandedOutAfterTheirDate(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := toldEngine(t, store, rowsAhead())
		stop := runningUntil(t, e)
		stand(t, e)
		stop() // nobody looks for leases that are over any more
		takes(t, e, 3)
		time.Sleep(rowsAheadBy - time.Millisecond)
		if d := mustTake(t, e); !d.Leased {
			t.Errorf("%+v: want it by a row ahead", d)
		}
		time.Sleep(time.Millisecond)
		if d := mustTake(t, e); d.Leased {
			t.Errorf("%+v: by a row that is dated now", d)
		}
	})
}

// Instances that take turns, by whatever clocks within the tolerance, admit no more than the
// limit in any window, rows ahead and allowances together.
func TestRowsAheadOfSeveralInstances(t *testing.T) {
	for seed := range uint64(5) {
		bubble(t, strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			store := newFakeStore()
			var engines []*limiter.Engine
			for range 3 {
				e := toldEngine(t, store, rowsAhead())
				running(t, e)
				stand(t, e)
				engines = append(engines, e)
			}
			var admitted []time.Time
			leased := 0
			for range 600 {
				time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(rowsWindow / 2))))
				}
				d := mustTake(t, engines[rng.IntN(len(engines))])
				if !d.Allowed {
					continue
				}
				admitted = append(admitted, time.Now())
				if d.Leased {
					leased++
				}
				if n := len(admitted); n > 10 && admitted[n-1].Sub(admitted[n-11]) < rowsWindow {
					t.Fatalf("eleven within %v", admitted[n-1].Sub(admitted[n-11]))
				}
			}
			if leased == 0 || len(admitted) < 50 {
				t.Errorf("%d admitted, of which %d by what was counted ahead", len(admitted), leased)
			}
		})
	}
}

// A reset forgets rows that were counted ahead, though they are dated after it: those that were
// handed out, those that are left, and those of a process that is gone.
func TestResetForgetsRowsAhead(t *testing.T) {
	for _, takes := range []int{2, 3, 4} {
		standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			for range takes {
				mustTake(t, e)
			}
			time.Sleep(time.Second)
			if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
				t.Fatal(err)
			}
			for name, by := range map[string]*limiter.Engine{"where it was reset": other, "elsewhere": e} {
				time.Sleep(time.Second)
				if d, err := by.Check(t.Context(), somebody); err != nil || d.Used != 0 {
					t.Errorf("after %d takes, %s: %+v, %v: want none used", takes, name, d, err)
				}
			}
			if taken := takeUntil(t, e, 11, isDenied); taken != 10 {
				t.Errorf("%d after a reset that followed %d", taken, takes)
			}
		})
	}
}

// Rows ahead are not counted against who asks their process, be it by a check or by a take of
// more than one unit, which no row is.
func TestRowsAheadAreNotHeldAgainstTheirOwner(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		takes(t, e, 3)
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 3 {
			t.Errorf("%+v, %v: want 3 used", d, err)
		}
		if d := takeAs(t, e, somebody.Identifier, 7); !d.Allowed || d.Leased || d.Used != 10 {
			t.Errorf("%+v: want all that is left", d.Decision)
		}
		time.Sleep(2 * time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 8 {
			t.Errorf("%+v, %v: want what was admitted by rows, without those that were left", d, err)
		}
	})
}

// Rows ahead that do not fit are not handed out, and removed.
func TestRowsAheadThatDoNotFit(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		for range 7 {
			takeOf(t, other, somebody.Identifier)
		}
		takes(t, e, 2) // by the allowance
		if d := mustTake(t, e); !d.Allowed || d.Leased || d.Used != 10 {
			t.Errorf("%+v: want the tenth", d)
		}
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("%+v: the eleventh", d)
		}
		time.Sleep(2 * time.Second)
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 10 {
			t.Errorf("%+v, %v: want 10", d, err)
		}
	})
}

// Rows that were written with a take that failed are handed out to nobody, and removed.
func TestRowsAheadOfATakeThatFailed(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		takes(t, e, 2)
		store.set(func() {
			store.afterRead = func(*limiter.State) error { return errors.Join(limiter.ErrUnavailable, errDropped) }
		})
		if _, err := e.Take(t.Context(), somebody); err == nil {
			t.Error("no error of a store that can't be read")
		}
		store.set(func() { store.afterRead = nil })
		if d := mustTake(t, e); d.Leased {
			t.Errorf("%+v: by rows of which nobody knows whether they fit", d)
		}
		time.Sleep(rowsAheadBy + 5*time.Second)
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1 {
			t.Errorf("%+v, %v: want the one that was admitted by rows", d, err)
		}
	})
}

// What was handed out of rows ahead is given back by its receipt, on any instance.
func TestRowsAheadAreRefunded(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		takes(t, e, 3)
		a := takeAs(t, e, somebody.Identifier, 1)
		if !a.Leased || a.Receipt == "" || a.DatedAt() != limiter.InstantOf(time.Now()) {
			t.Fatalf("%+v: want it by a row ahead, dated now", a)
		}
		if err := other.Refund(t.Context(), a.Receipt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rowsAheadBy + 5*time.Second)
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 3 {
			t.Errorf("%+v, %v: want 3 used", d, err)
		}
		if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != 1 {
			t.Errorf("%+v, %v: want the row of the third", d, err)
		}
	})
}

// Rows ahead are of logs whose windows are ten times as long as they are kept, and of small
// limits.
func TestWhereThereAreNoRowsAhead(t *testing.T) {
	short, long := rowsAhead(), rowsAhead()
	long.Limits[0].Limit = 65
	short.Limits[0].Window = 5*time.Minute - time.Second
	off := rowsAhead()
	off.Leases = limiter.LeasesOff
	for name, policy := range map[string]limiter.Policy{"a short window": short, "a large limit": long, "no leases": off} {
		bubble(t, name, func(t *testing.T) {
			store := newFakeStore()
			e := toldEngine(t, store, policy)
			running(t, e)
			stand(t, e)
			for range 5 {
				mustTake(t, e)
			}
			if n := store.rowsAhead(); n > 0 {
				t.Errorf("%d rows ahead", n)
			}
		})
	}
}

// A take that is dated later than this instance's clock, as after a reset by one that is ahead, has
// no rows ahead: those would be dated later still, and be gone before they cease to count.
func TestNoRowsAheadOfTakesThatAreDatedLater(t *testing.T) {
	for _, later := range []bool{true, false} {
		standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
			if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil { // which is dated ahead of all clocks
				t.Fatal(err)
			}
			if !later {
				time.Sleep(time.Second)
			}
			last := limiter.InstantOf(time.Now()).Add(rowsAheadBy)
			for range 6 {
				mustTake(t, e)
			}
			for _, w := range store.written() {
				for _, event := range w.Events {
					if event.At > last {
						t.Errorf("a row is dated %v later than it may be", event.At.Sub(last))
					}
				}
			}
			if n := store.rowsAhead(); later != (n == 0) {
				t.Errorf("%d rows ahead; dated later: %v", n, later)
			}
		})
	}
}

// What an override let through, here or elsewhere, counts once it is over, whatever was counted
// ahead before it.
func TestRowsAheadEndWithAnOverride(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		standing(t, rowsAhead(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			running(t, other)
			takes(t, e, 3)
			o := limiter.Override{
				Kind: limiter.OverrideLimits, Limits: []limiter.LimitOverride{{Name: "sliding-log-10m", Limit: 100}},
				Until: limiter.InstantOf(time.Now().Add(5 * time.Second)),
			}
			by := e
			if elsewhere {
				by = other
			}
			if _, err := by.SetOverride(t.Context(), "p", somebody.Identifier, o); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // e has heard of it
			if admitted := takes(t, by, 50); admitted != 50 {
				t.Errorf("%d admitted under an override to 100", admitted)
			}
			time.Sleep(4 * time.Second)
			if d := mustTake(t, e); d.Allowed {
				t.Errorf("elsewhere: %v: %+v; want a denial after 53 of 10", elsewhere, d)
			}
		})
	}
}

// A note that a key is high is found for as long as rows ahead of it may be in a window with what
// an allowance hands out that is made then.
func TestNotesOutliveRowsAhead(t *testing.T) {
	standing(t, rowsAhead(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		takes(t, e, 10)
		notes := 0
		store.set(func() {
			for _, w := range store.writes {
				for _, put := range w.Put {
					if len(put.Limit) != 2*limiter.KeySize { // of an allowance
						continue
					}
					notes++
					least := 2*rowsWindow + 2*tolerance + rowsAheadBy
					if lives := put.Expires.Sub(put.Start); lives < least || put.TTL < least-rowsWindow {
						t.Errorf("a note is kept for %v, and looked for until %v, want %v", put.TTL, lives, least)
					}
				}
			}
		})
		if notes == 0 {
			t.Error("no key was noted")
		}
	})
}
