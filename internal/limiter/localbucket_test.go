package limiter_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func buckets() []string {
	return slices.DeleteFunc(limiter.Algorithms(), func(name string) bool { return slices.Contains(writtenFirst(), name) })
}

// Buckets in memory ask nobody, and cost a read and a conditional write in an interval,
// however much is poured.
func TestLocalBucketsAskNobody(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			e := instance(t, store, nil, inMemory(algorithm, 10, time.Hour))
			for sync := range 3 {
				if allowed := takes(t, e, 3); allowed != 3 {
					t.Errorf("%d of 3", allowed)
				}
				if reads, writes := store.counts(); reads != sync || writes != sync {
					t.Errorf("%d reads and %d writes before sync %d", reads, writes, sync)
				}
				nextSync()
			}
			if allowed := takes(t, e, 3); allowed != 1 {
				t.Errorf("%d more of 10", allowed)
			}
			takes(t, e, 5)
			nextSync()
			if reads, writes := store.counts(); reads != 4 || writes != 4 {
				t.Errorf("%d reads and %d writes", reads, writes)
			}
		})
	}
}

// What others poured is known after a sync of each, and what is poured while it is learned
// stays.
func TestLocalBucketsMergeWhatOthersPour(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory(algorithm, 10, time.Hour)
			a, b := instance(t, store, nil, policy), instance(t, store, nil, policy)
			takes(t, a, 4)
			nextSync()
			if d := mustTake(t, b); d.Used != 1 {
				t.Errorf("what is known decides: %+v", d.Verdict)
			}
			store.set(func() { store.readTakes = 100 * time.Millisecond })
			time.Sleep(limiter.DefaultSyncInterval + 50*time.Millisecond)
			takes(t, b, 2) // while the sync is under way
			nextSync()
			if used := mustCheck(t, b).Used; used != 7 {
				t.Errorf("%d used, want 7", used)
			}
			if allowed := takes(t, b, 5); allowed != 3 {
				t.Errorf("%d more of 10, want 3", allowed)
			}
		})
	}
}

// A bucket that drains much faster than it is synced keeps its pace: who asks for half of
// what drains is not denied.
func TestLocalBucketsDrainBetweenSyncs(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			policy := inMemory(algorithm, 60_000, time.Minute) // one in a millisecond
			if algorithm == "token-bucket" {
				policy.Limits[0].Burst = 3
			}
			e := instance(t, newFakeStore(), nil, policy)
			for range 1000 {
				if !mustTake(t, e).Allowed {
					t.Fatal("denied")
				}
				time.Sleep(2 * time.Millisecond)
			}
			if used := mustCheck(t, e).Used; used > 1 {
				t.Errorf("%d used", used)
			}
		})
	}
}

// A reset that is heard of while a sync is under way, which takes what was there before it
// for what is there, is found by those who are denied.
func TestLocalBucketIsResetDuringASync(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store, feed := newFakeStore(), newFakeFeed()
			policy := inMemory(algorithm, 2, time.Hour)
			a, b := instance(t, store, feed, policy), instance(t, store, feed, policy)
			var slow atomic.Bool // the first one was
			store.set(func() {
				store.onWrite = func(w *limiter.Write) error {
					if slow.Swap(true) {
						return nil
					}
					_ = store.Store.Write(t.Context(), w)
					time.Sleep(time.Second)
					return errDropped
				}
			})
			takes(t, b, 2)
			time.Sleep(limiter.DefaultSyncInterval + 100*time.Millisecond)
			mustReset(t, a)
			time.Sleep(time.Second)
			takes(t, b, 1)
			time.Sleep(time.Second)
			if !mustTake(t, b).Allowed {
				t.Error("denied for what was reset")
			}
		})
	}
}

// TestLocalBucketsAreBounded holds what several instances let through of one bucket to
// what is promised, in any time.
func TestLocalBucketsAreBounded(t *testing.T) {
	const runs, window, lasts = 40, 10 * time.Second, 20 * time.Second
	beyond := 0
	for seed := range uint64(runs) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			policy := inMemory(buckets()[seed%2], 1+rnd.Int64N(40), window)
			store := newFakeStore()
			store.readTakes, store.writeTakes = upTo(rnd, 100*time.Millisecond), upTo(rnd, 60*time.Millisecond)
			stretch := limiter.DefaultSyncInterval + timeout // conflicts take their time
			admitted := askAround(t, store, rnd, policy, lasts)
			bound, least := policy.Limits[0].Limit+1, int64(1<<40)
			for i := range admitted {
				bound, least = bound+most(admitted[i], stretch), min(least, most(admitted[i], stretch))
			}
			over := mostPoured(slices.Concat(admitted...), policy.Limits[0])
			if over > bound-least {
				t.Errorf("%d more than what drains were admitted, at most %d may be (replay: seed %d)", over, bound-least, seed)
			}
			if over > policy.Limits[0].Limit+1 {
				beyond++
			}
		})
	}
	if beyond == 0 {
		t.Error("never more than the limit: nothing was tried")
	}
	t.Logf("more than the limit in %d of %d runs", beyond, runs)
}

// mostPoured returns how many units more than what l drains were admitted at most, in any
// time.
func mostPoured(admitted []admission, l limiter.Limit) (over int64) {
	slices.SortFunc(admitted, func(a, b admission) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for i, from := range admitted {
		units := int64(0)
		for _, a := range admitted[i:] {
			units += a.cost
			over = max(over, units-int64(a.at.Sub(from.at))*l.Limit/int64(l.Window))
		}
	}
	return over
}
