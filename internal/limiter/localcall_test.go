package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// nearAndFar returns a policy p that is decided in memory and one called q that is
// counted in the store, of so many an hour.
func nearAndFar(algorithm string, p, q int64) []limiter.Policy {
	policies := twoPolicies(limitOf(algorithm, p), limitOf(algorithm, q))
	policies[0].Guarantee = limiter.GuaranteeLocal
	return policies
}

// Of several demands all are counted or none, whichever of them is decided in memory and
// whichever denies.
func TestLocalBesideOthersAllOrNone(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		for name, limits := range map[string][2]int64{"the store denies": {5, 1}, "memory denies": {1, 5}} {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				store := newFakeStore()
				e := instance(t, store, nil, nearAndFar(algorithm, limits[0], limits[1])...)
				take := limiter.Call{Op: limiter.OpTake, Demands: both}
				if a := mustDo(t, e, take); !a.Allowed || len(a.Demands) != 2 || a.Receipt == "" {
					t.Fatalf("%+v", a)
				}
				for range 3 {
					a := mustDo(t, e, take)
					if a.Allowed || a.Recorded != limiter.RecordedNo || a.Demands[0].Policy.Name != "p" || a.Demands[1].Policy.Name != "q" {
						t.Errorf("%+v", a)
					}
					if a.Demands[0].Allowed == a.Demands[1].Allowed {
						t.Errorf("one of two denies: %+v", a.Demands)
					}
				}
				time.Sleep(3 * time.Second)
				for _, d := range both {
					if used := usedBy(t, e, d); used != 1 {
						t.Errorf("%s: %d used, want 1", d.Policy, used)
					}
				}
			})
		}
	}
}

// A denied attempt counts under count: all, whoever denied it.
func TestLocalBesideOthersCountsDeniedAttempts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		policies := nearAndFar("fixed-window", 5, 0)
		policies[0].Count = limiter.CountAll
		e := instance(t, newFakeStore(), nil, policies...)
		for range 2 {
			if a := mustDo(t, e, limiter.Call{Op: limiter.OpTake, Demands: both}); a.Allowed {
				t.Errorf("%+v", a)
			}
		}
		if used := usedBy(t, e, both[0]); used != 2 {
			t.Errorf("%d used, want 2", used)
		}
	})
}

// Where the store fails for the other demand, what was counted in memory is taken back.
func TestLocalBesideOneThatFails(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := instance(t, store, nil, nearAndFar("sliding-log", 5, 5)...)
		mustDo(t, e, limiter.Call{Op: limiter.OpTake, Demands: both})
		store.set(func() {
			store.onWrite = func(*limiter.Write) error { return errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored) }
		})
		if _, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: both}); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if used := usedBy(t, e, both[0]); used != 1 {
			t.Errorf("%d used, want 1", used)
		}
	})
}

// Demands that are all decided in memory are all counted or none, and ask nobody.
func TestLocalDemandsTogether(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		policies := nearAndFar("sliding-log", 5, 1)
		policies[1].Guarantee = limiter.GuaranteeLocal
		e := instance(t, store, nil, policies...)
		call := limiter.Call{Op: limiter.OpTake, Demands: both}
		mustDo(t, e, call) // it asks for the secret that receipts are sealed with
		store.set(func() { store.readTakes, store.writeTakes = time.Hour, time.Hour })
		if a := mustDo(t, e, call); a.Allowed || a.Recorded != limiter.RecordedNo {
			t.Errorf("%+v", a)
		}
		if used := usedBy(t, e, both[0]); used != 1 {
			t.Errorf("%d used, want 1", used)
		}
	})
}

// A call with an idempotency key counts once, at whatever instance it comes again.
func TestLocalRepetitionsCountOnce(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory(algorithm, 5, time.Hour)
			a, b := instance(t, store, nil, policy), instance(t, store, nil, policy)
			call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
			first := mustDo(t, a, call)
			for _, e := range []*limiter.Engine{a, b} {
				if again := mustDo(t, e, call); !again.Replayed || again.Receipt != first.Receipt || !again.Allowed {
					t.Errorf("%+v", again)
				}
			}
			for range 2 {
				_, _ = mustCheck(t, a), mustCheck(t, b)
				someSyncs()
			}
			if mustCheck(t, a).Used != 1 || mustCheck(t, b).Used != 1 {
				t.Errorf("%d and %d used", mustCheck(t, a).Used, mustCheck(t, b).Used)
			}
		})
	}
}

// TestLocalResetBeforeAKeyedTake counts a take after a reset that is dated ahead of the
// clock, by an event whose id was made, and dated, for the idempotency key.
func TestLocalResetBeforeAKeyedTake(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			store, feed := newFakeStore(), newFakeFeed()
			a := instance(t, store, feed, inMemory(algorithm, 5, time.Hour))
			takes(t, a, 5)
			time.Sleep(time.Second)
			mustReset(t, a)
			keyed := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
			if got := mustDo(t, a, keyed); !got.Allowed {
				t.Error("denied")
			}
			someSyncs()
			wantDatedByTheirIDs(t, store)
			late := instance(t, store, feed, inMemory(algorithm, 5, time.Hour))
			mustCheck(t, late)
			someSyncs()
			if used := mustCheck(t, late).Used; used != 1 {
				t.Errorf("used %d elsewhere, want 1", used)
			}
		})
	}
}

// What a call counts in memory is counted once where another of its demands has to be dated
// anew, as it was reset just before.
func TestLocalBesideOneThatIsDatedAnew(t *testing.T) {
	for name, set := range map[string]func(op *limiter.Op, near, far *limiter.Policy){
		"a record":                        func(op *limiter.Op, _, _ *limiter.Policy) { *op = limiter.OpRecord },
		"a take":                          func(*limiter.Op, *limiter.Policy, *limiter.Policy) {},
		"one that passes without a store": func(_ *limiter.Op, _, far *limiter.Policy) { far.OnStoreError = limiter.OnStoreErrorAllow },
		"one that counts denied attempts": func(_ *limiter.Op, near, _ *limiter.Policy) { near.Count = limiter.CountAll },
	} {
		for _, algorithm := range writtenFirst() {
			bubble(t, name+", "+algorithm, func(t *testing.T) {
				policies, op := nearAndFar(algorithm, 9, 9), limiter.OpTake
				set(&op, &policies[0], &policies[1])
				e := instanceWith(t, newFakeStore(), &limiter.Options{
					StoreTimeout: timeout, ClockTolerance: tolerance, Local: embedded.New(nil), Feed: newFakeFeed(),
				}, policies...)
				time.Sleep(time.Second)
				if err := e.Reset(t.Context(), both[1].Policy, both[1].Identifier); err != nil {
					t.Fatal(err)
				}
				mustDo(t, e, limiter.Call{Op: op, Demands: both, IdempotencyKey: "k"})
				time.Sleep(3 * time.Second)
				for _, d := range both {
					if used := usedBy(t, e, d); used != 1 {
						t.Errorf("%s: %d used, want 1", d.Policy, used)
					}
				}
			})
		}
	}
}
