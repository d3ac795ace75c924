package limiter_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// isLogAllowance reports whether w stores an allowance under standingLog's policy, or one of
// another window.
func isLogAllowance(w *limiter.Write) bool {
	return len(w.Put) == 1 && strings.HasPrefix(string(w.Put[0].Limit), "10 in ")
}

// A reload to another window counts what the allowances of the one before may have handed
// out, and nobody makes another beside those.
func TestAllowancesOfALogAndReloads(t *testing.T) {
	for _, window := range []time.Duration{time.Minute, 2 * time.Hour} {
		policy := standingLog()
		policy.Limits[0].Window = time.Hour
		standing(t, policy, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			reload := func(p limiter.Policy) {
				t.Helper()
				if err := e.SetPolicies([]limiter.Policy{p}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Minute)
			takeOf(t, e, "whoever keeps it going")
			admitted := takes(t, e, 2)
			changed := standingLog()
			changed.Limits[0].Window = window
			reload(changed)
			if admitted += takes(t, e, 20); admitted != 10 {
				t.Errorf("%d admitted, want 10", admitted)
			}
			stand(t, e)
			if d := takeOf(t, e, "somebody else"); d.Leased {
				t.Errorf("%+v: by an allowance beside one of another window", d)
			}
		})
	}
	policy := standingLog()
	standing(t, policy, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
		takes(t, e, 1)
		policy.Description = "as before"
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		if d := takeOf(t, e, "somebody else"); !d.Leased {
			t.Errorf("%+v: want it from memory after a reload that changes nothing", d)
		}
		if admitted := takes(t, e, 20); admitted != 9 {
			t.Errorf("%d admitted after the first, want 9", admitted)
		}
	})
}

// What was handed out by an allowance that this process has forgotten, as its clock went ahead
// for a moment, counts whole with a key that was noted before.
func TestClockThatLeapsBesideAnAllowanceOfALog(t *testing.T) {
	for name, test := range map[string]struct{ first, then time.Duration }{
		"ahead and back":       {0, 50 * time.Second},
		"ahead, then set back": {5 * time.Second, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			var ahead atomic.Int64
			ahead.Store(int64(test.first))
			e := limiter.New(newFakeStore(), &limiter.Options{
				ClockTolerance: tolerance, StoreTimeout: timeout, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			})
			policy := standingLog()
			policy.Limits[0].Window = 20 * time.Second
			if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
				t.Fatal(err)
			}
			running(t, e)
			stand(t, e)
			if d := mustTake(t, e); !d.Leased {
				t.Fatalf("%+v: want it from memory", d)
			}
			admitted := 1 + takes(t, e, 6) // of which one more from memory
			ahead.Store(int64(test.then))
			time.Sleep(1100 * time.Millisecond)
			ahead.Store(0)
			if admitted += takes(t, e, 10); admitted != 10 {
				t.Errorf("%d admitted, want 10", admitted)
			}
		})
	}
}

// An override holds what it says on an instance that counts alone at once and, beside others'
// allowances, once those that were there when it was put in force are over.
func TestAllowancesOfALogAndOverrides(t *testing.T) {
	override := func(t *testing.T, e *limiter.Engine, limit int64) {
		t.Helper()
		o := limiter.Override{
			Kind: limiter.OverrideLimits, Limits: []limiter.LimitOverride{{Name: "sliding-log-1m", Limit: limit}},
			Until: limiter.InstantOf(time.Now().Add(time.Hour)),
		}
		if _, err := e.SetOverride(t.Context(), "p", somebody.Identifier, o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	}
	for _, handed := range []int{0, 1} {
		standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			admitted := takes(t, e, handed)
			override(t, e, 2)
			if admitted += takes(t, e, 5); admitted != 2 {
				t.Errorf("%d admitted under an override to 2", admitted)
			}
		})
	}
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		admitted := takes(t, e, 1)
		override(t, other, 3)
		for range 30 {
			takeOf(t, e, "whoever keeps it going")
			admitted += takes(t, other, 1)
			admitted += takes(t, e, 1)
			time.Sleep(time.Second)
		}
		if admitted != 3 {
			t.Errorf("%d admitted under an override to 3", admitted)
		}
		time.Sleep(3 * time.Minute)
		takeOf(t, e, "whoever keeps it going")
		time.Sleep(2 * time.Second)
		if admitted := takes(t, other, 5); admitted != 3 {
			t.Errorf("%d admitted under an override to 3, by which nothing was handed out since it was made", admitted)
		}
	})
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		override(t, other, 30)
		admitted := takes(t, other, 40) + takes(t, e, 40)
		if admitted > 30 || admitted < 29 {
			t.Errorf("%d admitted under an override to 30", admitted)
		}
	})
}

// Whoever has not heard of an override yet may hand out by the allowance of the next period:
// that counts.
func TestAllowanceOfALogOfWhoHasNotHeardOfAnOverride(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		feed := &deafFeed{Feed: store.Store.(limiter.Feed)}
		e := limiter.New(store, &limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Feed: feed})
		if err := e.SetPolicies([]limiter.Policy{standingLog()}); err != nil {
			t.Fatal(err)
		}
		running(t, e)
		stand(t, e)
		other := toldEngine(t, store, standingLog())
		nearEnd(time.Second)
		takeOf(t, e, "whoever keeps it going")
		nearEnd(3 * tolerance)
		feed.deaf.Store(true)
		o := limiter.Override{
			Kind: limiter.OverrideLimits, Limits: []limiter.LimitOverride{{Name: "sliding-log-1m", Limit: 5}},
			Until: limiter.InstantOf(time.Now().Add(time.Hour)),
		}
		if _, err := other.SetOverride(t.Context(), "p", somebody.Identifier, o); err != nil {
			t.Fatal(err)
		}
		nearEnd(-3 * tolerance)
		if d := mustTake(t, e); !d.Leased {
			t.Fatalf("%+v: want it from memory", d)
		}
		if admitted := 1 + takes(t, other, 10); admitted != 2 { // beside one more, and two of the period before
			t.Errorf("%d admitted under an override to 5, want 2", admitted)
		}
	})
}

// Who resets a key forgets what it has handed out just before.
func TestResetRightAfterAnEventWasHandedOut(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
		takes(t, e, 1)
		time.Sleep(tolerance / 2)
		if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 0 {
			t.Errorf("%+v, %v: want nothing used", d, err)
		}
		if admitted := takes(t, e, 20); admitted != 10 {
			t.Errorf("%d admitted after a reset, want 10", admitted)
		}
	})
}

// What is handed out while a reset is being written counts after it.
func TestEventThatIsHandedOutWhileItsKeyIsReset(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		takes(t, other, 5)
		admitted := 0
		store.set(func() {
			store.onWrite = func(w *limiter.Write) error {
				if w.Reset == 0 {
					return nil
				}
				err := store.Store.Write(context.Background(), w)
				time.Sleep(2 * tolerance)
				admitted += takes(t, other, 20) + takes(t, e, 1)
				return errors.Join(err, errDropped)
			}
		})
		if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		if admitted += takes(t, e, 3); admitted != 10 {
			t.Errorf("%d admitted after a reset, want 10", admitted)
		}
	})
}

// A key that gets high on the very instance that is making an allowance is denied no earlier,
// and nothing is handed out of it.
func TestKeyThatGetsHighWhileItsOwnAllowanceIsMade(t *testing.T) {
	// Making one is: read the allowances, store it, read them again, read which keys are high.
	for name, reads := range map[string]int32{"before those that are high were read": 1, "after that": 2} {
		bubble(t, name, func(t *testing.T) {
			store := newFakeStore()
			e := toldEngine(t, store, standingLog())
			var stored, once atomic.Bool
			var read atomic.Int32
			admitted := make(chan int, 1)
			store.onWrite = func(w *limiter.Write) error {
				if isLogAllowance(w) {
					stored.Store(true)
				}
				return nil
			}
			store.afterRead = func(*limiter.State) error {
				if !stored.Load() || read.Add(1) != reads || !once.CompareAndSwap(false, true) {
					return nil
				}
				n := 0
				for range 10 {
					if d, err := e.Take(context.Background(), somebody); err == nil && d.Allowed {
						n++
					}
				}
				admitted <- n
				return nil
			}
			running(t, e)
			stand(t, e)
			if d := takeOf(t, e, "somebody else"); !d.Leased {
				t.Errorf("%+v: want it from memory", d)
			}
			if admitted := <-admitted + takes(t, e, 3); admitted != 10 {
				t.Errorf("%d admitted, want 10", admitted)
			}
		})
	}
}

// Who was decided over by rows before there was an allowance is told what is used.
func TestRowsBeforeThereIsAnAllowanceOfALog(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		e := toldEngine(t, newFakeStore(), standingLog())
		running(t, e)
		takes(t, e, 4)
		stand(t, e)
		if d := mustTake(t, e); d.Leased || d.Used != 5 {
			t.Errorf("%+v: want the fifth, by rows", d)
		}
	})
}

// Where clocks may differ by so much that an allowance could hardly be used there is none.
func TestNoAllowanceOfAShortLog(t *testing.T) {
	policy := standingLog()
	policy.Limits[0].Window = time.Second
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := limiter.New(store, &limiter.Options{ClockTolerance: 300 * time.Millisecond, StoreTimeout: timeout})
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		running(t, e)
		stand(t, e)
		takes(t, e, 3)
		time.Sleep(2 * time.Second)
		store.set(func() {
			for i := range store.writes {
				if isLogAllowance(&store.writes[i]) {
					t.Errorf("%+v", store.writes[i])
				}
			}
		})
	})
}

// A refund of what another instance handed out, which can't be told, is not known to have
// given anything back.
func TestRefundOfAnEventThatCannotBeTold(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		feed := &deafFeed{Feed: store.Store.(limiter.Feed)}
		other := limiter.New(store, &limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Feed: feed})
		if err := other.SetPolicies([]limiter.Policy{standingLog()}); err != nil {
			t.Fatal(err)
		}
		running(t, other)
		a := takeAs(t, e, somebody.Identifier, 1)
		feed.deaf.Store(true)
		stand(t, other)
		own := takeAs(t, other, "somebody else", 1)
		if err := other.Refund(t.Context(), own.Receipt); err != nil || !own.Leased {
			t.Errorf("%v: of %+v nobody has to be told", err, own.Decision)
		}
		wantRecorded(t, other.Refund(t.Context(), a.Receipt), limiter.RecordedUnknown)
		feed.deaf.Store(false)
		time.Sleep(5 * time.Second)
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 0 {
			t.Errorf("%+v, %v: want it given back once it was told", d, err)
		}
	})
}

// deafFeed neither tells nor hears anything while it is deaf.
type deafFeed struct {
	limiter.Feed
	deaf atomic.Bool
}

func (f *deafFeed) Changes(ctx context.Context, q *limiter.ChangeQuery) ([]limiter.Change, error) {
	if f.deaf.Load() {
		return nil, limiter.ErrUnavailable
	}
	return f.Feed.Changes(ctx, q)
}

func (f *deafFeed) Publish(ctx context.Context, c *limiter.Change) error {
	if f.deaf.Load() {
		return limiter.ErrUnavailable
	}
	return f.Feed.Publish(ctx, c)
}

// Without a feed nobody can be told what was given back.
func TestRefundOfAnEventWithoutAFeed(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e, other := newEngine(t, store, 0, standingLog()), newEngine(t, store, 0, standingLog())
		running(t, e)
		stand(t, e)
		a := takeAs(t, e, somebody.Identifier, 1)
		wantRecorded(t, other.Refund(t.Context(), a.Receipt), limiter.RecordedUnknown)
	})
}

// What was handed out is forgotten once it matters no more, though nobody asks for the policy.
func TestAllowancesThatNobodyAsksForAreForgotten(t *testing.T) {
	for _, policy := range []limiter.Policy{standingLog(), standingRows(time.Minute)} {
		standing(t, policy, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			nearEnd(-10 * time.Second)
			if n := e.Allowances("p"); n == 0 {
				t.Error("none, right after the end of their window")
			}
			time.Sleep(3 * time.Minute)
			if n := e.Allowances("p"); n > 0 {
				t.Errorf("%d are left", n)
			}
			stand(t, e)
			if d := takeOf(t, e, "somebody else"); !d.Leased {
				t.Errorf("%+v: want it from memory again", d)
			}
		})
	}
}
