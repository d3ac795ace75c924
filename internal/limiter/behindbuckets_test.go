package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// stall has conditional writes that reach store within the first part of every so often stored
// when that is over, later than anybody waits for an answer, and has no reads answered meanwhile.
func stall(s *fakeStore, part, every time.Duration) (recovers func()) {
	left := func() time.Duration { return part - time.Duration(time.Now().UnixNano())%every }
	s.set(func() {
		s.onWrite = func(w *store.Write) error {
			if w.Cell == nil || left() <= 0 {
				return nil
			}
			kept, cell := *w, *w.Cell
			cell.Value, kept.Cell = slices.Clone(cell.Value), &cell
			go func() {
				time.Sleep(left())
				_ = s.Store.Write(context.Background(), &kept) // a conflict: another one came first
			}()
			time.Sleep(min(left(), timeout/3))
			return store.ErrUnavailable
		}
		s.afterRead = func(*store.State) error {
			if left() <= 0 {
				return nil
			}
			time.Sleep(min(left(), timeout/2))
			return store.ErrUnavailable
		}
	})
	return func() {
		s.set(func() { s.onWrite, s.afterRead = nil, nil })
		time.Sleep(2 * every) // for what is still to be kept
	}
}

// TestLocalBucketsAreFilledOnce checks that added units count once, however often their write has no answer, while two
// instances take turns as owner and the store hangs for most of each second.
func TestLocalBucketsAreFilledOnce(t *testing.T) {
	const callers, limit = 20, 30
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store, policy := newFakeStore(), inMemory(algorithm, limit, 31*24*time.Hour)
			engines := []*limiter.Engine{tenant(t, store, nil, &tenancy{}, policy), tenant(t, store, nil, &tenancy{}, policy)}
			store.readTakes, store.writeTakes = 20*time.Millisecond, 20*time.Millisecond
			recovers := stall(store, 650*time.Millisecond, 1013*time.Millisecond) // of which syncs come at any time
			rnd := rand.New(rand.NewPCG(1, 2))
			var admitted [callers]int64
			for turn := range 30 * 20 {
				i := rnd.IntN(callers)
				d, err := engines[i%2].Take(t.Context(), caller(i))
				if err == nil && d.Allowed {
					admitted[i]++
				}
				if turn == 300 {
					engines[0].Flush(t.Context())
					engines[1].Flush(t.Context())
					slices.Reverse(engines)
				}
				time.Sleep(20 * time.Millisecond)
			}
			recovers()
			time.Sleep(2 * time.Second)
			after := instance(t, store, nil, policy)
			for i, want := range admitted {
				if got := used(t, after, caller(i)); got != want {
					t.Errorf("caller %d: %d used of %d that were admitted", i, got, want)
				}
			}
		})
	}
}

// TestLocalBucketsAfterALongDoubt has an owner that is parted from the store for half an hour, once it has sent a
// write without an answer. It finds out afterwards whether that is stored, however much its successors wrote.
func TestLocalBucketsAfterALongDoubt(t *testing.T) {
	const limit = 400 // so that nothing drains
	for _, stored := range []bool{true, false} {
		bubble(t, fmt.Sprint("stored ", stored), func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory("token-bucket", limit, 31*24*time.Hour)
			parted := &partOff{Store: store}
			e := tenant(t, parted, nil, &tenancy{}, policy)
			takes(t, e, 1)
			nextSync()
			parted.parts.Store(stored)
			parted.parted.Store(!stored)
			takes(t, e, 99)
			nextSync()
			others := []*limiter.Engine{instance(t, store, nil, policy), instance(t, store, nil, policy)}
			want := int64(100)
			for i := range 80 {
				want += int64(takes(t, others[i%2], 1))
				if i == 70 {
					time.Sleep(30 * time.Minute)
				}
				nextSync()
			}
			parted.parted.Store(false)
			time.Sleep(time.Second)
			for i, engine := range append([]*limiter.Engine{e}, others...) {
				if got := used(t, engine, somebody); got != want {
					t.Errorf("instance %d: %d used, want %d", i, got, want)
				}
			}
		})
	}
}

// TestLocalBucketsDrainBetweenSyncs holds that a bucket that drains much faster than it is written keeps its pace: a caller
// that asks for half of the drained units is not denied.
func TestLocalBucketsDrainBetweenSyncs(t *testing.T) {
	for _, algorithm := range []string{"leaky-bucket", "token-bucket"} {
		bubble(t, algorithm, func(t *testing.T) {
			policy := inMemory(algorithm, 60_000, time.Minute) // one in a millisecond
			if algorithm == "token-bucket" {
				policy.Limits[0].Burst = 3
			}
			store := newFakeStore()
			store.readTakes, store.writeTakes = time.Millisecond, time.Millisecond
			e := tenant(t, store, nil, &tenancy{}, policy)
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

// TestLocalBucketsThatOthersChange checks that added units go on top of another instance's change of the cell, and
// that it is read anew then.
func TestLocalBucketsThatOthersChange(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store, policy := newFakeStore(), inMemory(algorithm, 20, 24*time.Hour)
			e, other := tenant(t, store, nil, &tenancy{}, policy), instance(t, store, nil, policy)
			takes(t, e, 3)
			nextSync()
			takes(t, other, 4)
			takes(t, e, 5)
			nextSync()
			if here, there := mustCheck(t, e).Used, mustCheck(t, other).Used; here != 12 || there != 12 {
				t.Errorf("%d used, and %d elsewhere, want 12", here, there)
			}
		})
	}
}

// TestLocalCellsOfNewKeysAreNotRead holds that an owner that knows a key to be new writes its cell without a read, and
// finds by that write a cell that is there all the same.
func TestLocalCellsOfNewKeysAreNotRead(t *testing.T) {
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store, policy := newFakeStore(), inMemory(algorithm, 8, time.Hour)
			e := tenant(t, store, nil, &tenancy{}, policy)
			takes(t, e, 3)
			nextSync()
			if reads, writes := store.counts(); reads != 0 || writes != 1 {
				t.Errorf("%d reads and %d writes of a new key", reads, writes)
			}
			next := tenant(t, store, nil, &tenancy{}, policy) // as if the cell had been half written when it was looked for
			takes(t, next, 3)
			nextSync()
			if allowed := takes(t, next, 3); allowed != 2 {
				t.Errorf("%d are allowed after 6 of 8", allowed)
			}
			nextSync()
			if used := inStore(t, store, policy); used != 8 {
				t.Errorf("%d are stored, want 8", used)
			}
		})
	}
}
