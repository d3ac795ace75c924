package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// withOwnCounts returns a policy for each way of counting three a minute that goes by an instance's
// own counts while the store does not answer.
func withOwnCounts() map[string]policy.Policy {
	ways := make(map[string]policy.Policy)
	for _, algorithm := range policy.Algorithms() {
		if algorithm == policy.Concurrent.Name { // units may be released meanwhile
			continue
		}
		p := policyOf(algorithm, 3, time.Minute)
		p.OnStoreError = policy.OnStoreErrorLocal
		ways[algorithm] = p
	}
	rows, all := ways["sliding-tail"], ways["sliding-log"]
	rows.Counting = policy.CountingRows
	ways["sliding-tail, rows"] = rows
	all.Count = policy.CountAll
	ways["sliding-log, count all"] = all
	return ways
}

// outage has store fail in everything, until the function that it returns is called.
func outage(s *fakeStore) (ends func()) {
	s.set(func() {
		s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
		s.afterRead = func(*store.State) error { return store.ErrUnavailable }
	})
	return func() { s.set(func() { s.onWrite, s.afterRead = nil, nil }) }
}

// A key that an instance knows to be full, as it was denied there or as the last unit was taken
// there, is not admitted while the store does not answer, until it can have room by what is known.
func TestKnownFullWithoutTheStore(t *testing.T) {
	for name, policy := range withOwnCounts() {
		for last, here := range map[string]int{"denied here": 0, "filled here": 1, "checked here": 0} {
			bubble(t, name+", "+last, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
				store, feed := newFakeStore(), newFakeFeed()
				e, other := instance(t, store, feed, policy), instance(t, store, feed, policy)
				takes(t, other, 3-here)
				if last == "checked here" {
					mustCheck(t, e)
				} else if allowed := takes(t, e, 1); allowed != here {
					t.Fatalf("%d of 1 allowed while the store answers", allowed)
				}
				outage(store)
				for range 4 {
					d := mustTake(t, e)
					if d.Allowed || d.Degraded == d.Remembered || d.Remaining != 0 || d.RetryAfter <= 0 {
						t.Errorf("a full key without the store: %+v", d)
					}
					if d := mustCheck(t, e); d.Allowed || d.Degraded == d.Remembered {
						t.Errorf("a check: %+v", d)
					}
					time.Sleep(4 * time.Second)
				}
				if d, err := e.Take(t.Context(), caller(1)); err != nil || !d.Allowed || !d.Degraded {
					t.Errorf("a key of which nothing is known: %+v, %v", d, err)
				}
				time.Sleep(2 * time.Minute)
				if allowed := takes(t, e, 5); allowed != 3 {
					t.Errorf("%d of 5 allowed when it can have room, want 3 by own counts", allowed)
				}
			})
		}
	}
}

// A refund, here or elsewhere, ends what is known.
func TestKnownFullIsReset(t *testing.T) {
	for name, policy := range withOwnCounts() {
		for by, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
			bubble(t, name+", "+by, func(t *testing.T) {
				store, feed := newFakeStore(), newFakeFeed()
				e, other := instance(t, store, feed, policy), instance(t, store, feed, policy)
				takes(t, other, 3)
				takes(t, e, 1)
				if elsewhere {
					mustReset(t, other)
				} else {
					mustReset(t, e)
				}
				time.Sleep(2 * time.Second)
				outage(store)
				if allowed := takes(t, e, 5); allowed != 3 {
					t.Errorf("%d of 5 allowed, want 3 by own counts", allowed)
				}
			})
		}
	}
}

// Units that another demand's denial took back are not known to be there.
func TestKnownFullBesideADenial(t *testing.T) {
	for name, p := range withOwnCounts() {
		bubble(t, name, func(t *testing.T) {
			never := policyOf("sliding-log", 0, time.Hour)
			never.Name = "never"
			store := newFakeStore()
			e := instance(t, store, newFakeFeed(), p, never)
			takes(t, e, 2)
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody, {Policy: "never", Identifier: "x"}}}
			if a := mustDo(t, e, call); a.Allowed {
				t.Fatal("allowed")
			}
			outage(store)
			if allowed := takes(t, e, 1); allowed != 1 && p.Count != policy.CountAll {
				t.Error("denied for what was taken back")
			}
		})
	}
}
