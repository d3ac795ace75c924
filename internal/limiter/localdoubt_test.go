package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// stall has conditional writes that reach store within the first part of every so often stored
// when that is over, later than anybody waits for an answer, and has no reads answered meanwhile.
func stall(store *fakeStore, part, every time.Duration) (recovers func()) {
	var late sync.WaitGroup
	left := func() time.Duration { return part - time.Duration(time.Now().UnixNano())%every }
	store.set(func() {
		store.onWrite = func(w *limiter.Write) error {
			if w.Cell == nil || left() <= 0 {
				return nil
			}
			kept, cell := *w, *w.Cell
			cell.Value, kept.Cell = slices.Clone(cell.Value), &cell
			late.Go(func() {
				time.Sleep(left())
				_ = store.Store.Write(context.Background(), &kept) // a conflict: another one came first
			})
			time.Sleep(min(left(), timeout/3))
			return limiter.ErrUnavailable
		}
		store.afterRead = func(*limiter.State) error {
			if left() <= 0 {
				return nil
			}
			time.Sleep(min(left(), timeout/2))
			return limiter.ErrUnavailable
		}
	})
	return func() {
		store.set(func() { store.onWrite, store.afterRead = nil, nil })
		late.Wait()
	}
}

// partOff is a store that one instance can be parted from.
type partOff struct {
	limiter.Store
	parted atomic.Bool // nothing reaches the store
	parts  atomic.Bool // it is parted by the next write, which is stored and has no answer
}

// Read reads, unless it is parted.
func (p *partOff) Read(ctx context.Context, q *limiter.Query) (limiter.State, error) {
	if p.parted.Load() {
		return limiter.State{}, limiter.ErrUnavailable
	}
	return p.Store.Read(ctx, q)
}

// Write stores, unless it is parted.
func (p *partOff) Write(ctx context.Context, w *limiter.Write) error {
	if p.parted.Load() {
		return limiter.ErrUnavailable
	}
	err := p.Store.Write(ctx, w)
	if p.parts.Swap(false) {
		p.parted.Store(true)
		return limiter.ErrUnavailable
	}
	return err
}

// An instance that is parted from the store for half an hour, once it has sent a write without
// an answer, finds out afterwards whether that is stored, however much others wrote meanwhile.
func TestLocalBucketsAfterALongDoubt(t *testing.T) {
	const limit = 400 // so that nothing drains
	for _, stored := range []bool{true, false} {
		bubble(t, fmt.Sprint("stored ", stored), func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory("token-bucket", limit, 31*24*time.Hour)
			parted := &partOff{Store: store}
			e := instance(t, parted, nil, policy)
			others := []*limiter.Engine{instance(t, store, nil, policy), instance(t, store, nil, policy)}
			parted.parts.Store(stored)
			parted.parted.Store(!stored)
			takes(t, e, 100)
			nextSync()
			want := int64(100)
			for i := range 80 {
				want += int64(takes(t, others[i%2], 1))
				if i == 70 {
					time.Sleep(30 * time.Minute)
				}
				nextSync()
			}
			parted.parted.Store(false)
			someSyncs()
			for i, engine := range append([]*limiter.Engine{e}, others...) {
				if i > 0 {
					_ = used(t, engine, somebody) // has it read
					someSyncs()
				}
				if got := used(t, engine, somebody); got != want {
					t.Errorf("instance %d: %d used, want %d", i, got, want)
				}
			}
		})
	}
}

// What is poured into a bucket counts once, however often its write has no answer: several
// instances fill buckets while the store stands still for most of each second.
func TestLocalBucketsAreFilledOnce(t *testing.T) {
	const callers, limit, instances = 20, 10, 3
	for _, algorithm := range buckets() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory(algorithm, limit, 31*24*time.Hour)
			var engines []*limiter.Engine
			for range instances {
				engines = append(engines, instance(t, store, nil, policy))
			}
			store.readTakes, store.writeTakes = 20*time.Millisecond, 20*time.Millisecond
			recovers := stall(store, 650*time.Millisecond, 1013*time.Millisecond) // of which syncs come at any time
			rnd := rand.New(rand.NewPCG(1, 2))
			var admitted [callers]int64
			for range 30 * 20 {
				i := rnd.IntN(callers)
				d, err := engines[rnd.IntN(instances)].Take(t.Context(), caller(i))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					admitted[i]++
				}
				time.Sleep(50 * time.Millisecond)
			}
			recovers()
			someSyncs()
			someSyncs()
			after := instance(t, store, nil, policy)
			for i := range callers {
				_ = used(t, after, caller(i)) // has it read
			}
			someSyncs()
			for i, want := range admitted {
				if got := used(t, after, caller(i)); got != want {
					t.Errorf("caller %d: %d used of %d that were admitted", i, got, want)
				}
			}
		})
	}
}
