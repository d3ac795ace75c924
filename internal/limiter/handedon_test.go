package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestAWrongClockHandsOnCalls checks that an instance whose clock is beyond the tolerance has calls decided by the
// owners of their keys, and decides nothing itself.
func TestAWrongClockHandsOnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skewed := func() bool { return true }
		owner := &toOwner{engine: ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, logOf(2))}
		asker := ownerOf(t, newFakeStore(), &owners{other: owner}, limiter.Options{Skewed: skewed}, logOf(2))
		for i, want := range []bool{true, true, false} {
			if got, err := takeOne(t.Context(), asker); err != nil || got != want {
				t.Errorf("take %d, handed on: %t, error %v; want %t", i, got, err, want)
			}
		}
		several := callOf(limiter.Demand{Policy: "log", Identifier: "a"}, limiter.Demand{Policy: "log", Identifier: "b"})
		if a, err := asker.Do(t.Context(), several); err != nil || !a.Allowed {
			t.Errorf("a call of several demands, handed on: %+v, error %v", a, err)
		}
		sole := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{Skewed: skewed}, logOf(2))
		if got, err := takeOne(t.Context(), sole); got || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("an owner whose clock is wrong: %t, error %v", got, err)
		}
	})
}

// TestCallsThatAreLateAreNotCharged holds that a call which was handed on, and has not begun to be decided when its
// time is over, is not counted: neither one that waits for others of its key, nor one that comes too late.
func TestCallsThatAreLateAreNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		owner := &toOwner{engine: ownerOf(t, store, ownsAll(), limiter.Options{}, logOf(9))}
		asker := ownerOf(t, newFakeStore(), &owners{other: owner}, limiter.Options{}, logOf(9))
		store.set(func() { store.writeTakes = 200 * time.Millisecond })
		var all sync.WaitGroup
		all.Go(func() {
			if ok, err := takeOne(t.Context(), asker); !ok {
				t.Errorf("the first take: %v", err)
			}
		})
		time.Sleep(10 * time.Millisecond)
		for range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if ok, err := takeOne(ctx, asker); ok || err == nil {
					t.Errorf("a take that is late: %t, error %v", ok, err)
				}
			})
		}
		all.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if ok, err := takeOne(over, asker); ok || err == nil {
			t.Errorf("a take whose caller is gone: %t, error %v", ok, err)
		}
		store.set(func() { store.writeTakes = 0 })
		if d, err := owner.engine.Check(t.Context(), limiter.Demand{Policy: "log", Identifier: "id"}); err != nil || d.Used != 1 {
			t.Errorf("%d units are counted, error %v; want the first take's", d.Used, err)
		}
	})
}
