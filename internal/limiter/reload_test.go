package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// reloadLimit is how much the policies of these tests admit in a window that outlasts them.
const reloadLimit = 10

// countedAs returns a policy for each way of counting the same limit, all under one name.
func countedAs() map[string]policy.Policy {
	ways := make(map[string]policy.Policy)
	for _, algorithm := range policy.Algorithms() {
		ways[algorithm] = policyOf(algorithm, reloadLimit, 24*time.Hour)
	}
	for _, algorithm := range []string{"fixed-window", "sliding-window", "sliding-tail"} {
		p := ways[algorithm]
		p.Counting = policy.CountingRows
		ways[algorithm+", rows"] = p
	}
	longer := ways["fixed-window, rows"] // its totals are kept elsewhere
	longer.Limits = append(longer.Limits, policy.Limit{Algorithm: "fixed-window", Limit: reloadLimit, Window: 31 * 24 * time.Hour})
	ways["fixed-window, longer rows"] = longer
	for _, algorithm := range []string{"sliding-log", "fixed-window", "token-bucket"} {
		ways[algorithm+", local"] = inMemory(algorithm, reloadLimit, 24*time.Hour)
	}
	return ways
}

// reloadBound returns how much two instances may admit while one of these policies takes the place
// of the other: one limit, and another one where that starts counting anew.
func reloadBound(anew bool) int64 {
	if anew {
		return 2 * reloadLimit
	}
	return reloadLimit
}

// eachReload runs test for every two ways of counting, each in a bubble.
func eachReload(t *testing.T, test func(t *testing.T, from, to policy.Policy, bound int64)) {
	ways := countedAs()
	for before, from := range ways {
		for after, to := range ways {
			t.Run(before+" to "+after, func(t *testing.T) {
				inBubble(t, func(t *testing.T) { test(t, from, to, reloadBound(before != after)) })
			})
		}
	}
}

// TestReloadUnderLoad has callers that take at each millisecond from two instances, for one key, while one and then the
// other gets another policy.
func TestReloadUnderLoad(t *testing.T) {
	eachReload(t, func(t *testing.T, from, to policy.Policy, bound int64) {
		s := newFakeStore()
		s.set(func() { s.readTakes, s.writeTakes = 2*time.Millisecond, 3*time.Millisecond })
		first, second := newEngine(t, s, 0, from), newEngine(t, s, 0, from)
		running(t, first)
		running(t, second)
		ctx, stop := context.WithCancel(t.Context())
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for i := range 24 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				e := first
				if i%4 == 0 {
					e = second
				}
				for ctx.Err() == nil {
					d, err := e.Take(ctx, somebody)
					switch {
					case err == nil && d.Allowed:
						admitted.Add(1)
					case err != nil && !errors.Is(err, store.ErrUnavailable):
						t.Error(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		before := admitted.Load()
		must(t, first.SetPolicies([]policy.Policy{to}))
		time.Sleep(timeout)
		must(t, second.SetPolicies([]policy.Policy{to}))
		time.Sleep(timeout)
		stop()
		callers.Wait()
		if all := admitted.Load(); all > bound || before == 0 {
			t.Errorf("%d admitted before the reload, %d in all, at most %d may be", before, all, bound)
		}
	})
}

// A reload while callers come one after the other, now to one instance, now to the other,
// whose reload is later.
func TestReloadBetweenCallers(t *testing.T) {
	eachReload(t, func(t *testing.T, from, to policy.Policy, bound int64) {
		store := newFakeStore()
		engines := []*limiter.Engine{newEngine(t, store, 0, from), newEngine(t, store, 0, from)}
		for _, e := range engines {
			running(t, e)
		}
		admitted := int64(0)
		ask := func() {
			for range reloadLimit + 2 {
				for _, e := range engines {
					if mustTake(t, e).Allowed {
						admitted++
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
		ask()
		for _, e := range engines {
			must(t, e.SetPolicies([]policy.Policy{to}))
			ask()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		ask()
		if admitted > bound {
			t.Errorf("%d admitted, at most %d may be", admitted, bound)
		}
	})
}
