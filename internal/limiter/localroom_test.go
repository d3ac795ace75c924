package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// writeTakes is what a write takes of the store in the tests of room: with 64 at a time it
// takes ten seconds to write all that can wait.
const writeTakes = 10 * time.Millisecond

// roomless returns an engine that as many keys wait to be written of as can, of a store that is
// writing them, and what takes of a new key.
func roomless(t *testing.T, store *fakeStore) (e *limiter.Engine, take func(ctx context.Context, name string) (limiter.Decision, error)) {
	t.Helper()
	e = newEngine(t, store, 0, inMemory("sliding-log", 3, time.Hour))
	take = func(ctx context.Context, name string) (limiter.Decision, error) {
		return e.Take(ctx, limiter.Demand{Policy: "p", Identifier: limiter.Identifier(name)})
	}
	for i := range limiter.MaxUnsyncedKeys {
		if _, err := take(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	running(t, e)
	nextSync()
	time.Sleep(writeTakes + writeTakes/2)
	for i := range 64 { // as many as are written
		if _, err := take(t.Context(), fmt.Sprint("more ", i)); err != nil {
			t.Fatal(err)
		}
	}
	return e, take
}

// writesSlowly has store take its time for a write.
func writesSlowly(store *fakeStore) {
	store.set(func() { store.onWrite = func(*limiter.Write) error { time.Sleep(writeTakes); return nil } })
}

// Who comes when there is no room waits for what is being written, and no longer.
func TestLocalWaitsForRoom(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		_, take := roomless(t, store)
		const callers = 200 // 64 are written each 10 ms
		began := time.Now()
		var all sync.WaitGroup
		var last atomic.Int64
		for i := range callers {
			all.Go(func() {
				d, err := take(t.Context(), fmt.Sprint("new ", i))
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
				last.Add(1)
			})
			synctest.Wait() // so that they come one after the other
		}
		time.Sleep(writeTakes / 2)
		synctest.Wait()
		if n := last.Load(); n < 60 || n > 70 {
			t.Errorf("after one write of 64 keys, %d have come in", n)
		}
		all.Wait()
		if took := time.Since(began); took > 5*writeTakes {
			t.Errorf("%d waited for %v", callers, took)
		}
		wantDatedByTheirIDs(t, store)
	})
}

// They come in as they came, and are counted when they do.
func TestLocalRoomIsFirstComeFirst(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		e, _ := roomless(t, store)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint("new ", i))})
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if used := d.Limits()[0].Used; err != nil || used != 1 {
					t.Errorf("%d used, %v", used, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		for place, i := range order {
			if early := i - place; early > 64 || early < -64 { // those that come in at once are in any order
				t.Errorf("number %d came in as number %d", i, place)
			}
		}
	})
}

// Who goes away leaves the place to the next, and is not counted.
func TestLocalRoomThatIsGivenUp(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		_, take := roomless(t, store)
		var all sync.WaitGroup
		ask := func(ctx context.Context, name string, want error) {
			all.Go(func() {
				_, err := take(ctx, name)
				var failed *limiter.StoreError
				if !errors.Is(err, want) || want != nil && (!errors.As(err, &failed) || failed.Recorded != limiter.RecordedNo) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			})
			synctest.Wait()
		}
		for i := range 3 * 64 { // which are let in after 5, 15 and 25 ms
			ask(t.Context(), fmt.Sprint("new ", i), nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*writeTakes)
		defer cancel()
		for range 64 {
			ask(ctx, "gone", limiter.ErrOverloaded)
		}
		ask(t.Context(), "next", nil)
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > 4*writeTakes {
			t.Errorf("it took %v", took)
		}
		if d, err := take(t.Context(), "gone"); err != nil || d.Limits()[0].Used != 1 {
			t.Errorf("%+v, %v", d.Limits(), err)
		}
	})
}

// Where nothing is written any more, those who wait are told so after half of a store timeout,
// and those who come later at once.
func TestLocalRoomDuringAnOutage(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		_, take := roomless(t, store)
		store.set(func() { store.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable } })
		time.Sleep(writeTakes)
		synctest.Wait()
		for i := range 64 { // whose places were being written
			if _, err := take(t.Context(), fmt.Sprint("last ", i)); err != nil {
				t.Fatal(err)
			}
		}
		for i, most := range []time.Duration{timeout / 2, timeout / 2, 0} {
			began := time.Now()
			_, err := take(t.Context(), fmt.Sprint("new ", i))
			if took := time.Since(began); !errors.Is(err, limiter.ErrOverloaded) || took > most {
				t.Errorf("number %d waited for %v: %v", i, took, err)
			}
		}
		writesSlowly(store)
		nextSync()
		nextSync()
		if _, err := take(t.Context(), "new again"); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}

// No more wait than can come in soon.
func TestLocalRoomHasAShortQueue(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		_, take := roomless(t, store)
		var refused atomic.Int64
		var all sync.WaitGroup
		for i := range limiter.MaxRoomWaiting + 10 {
			all.Go(func() {
				if _, err := take(t.Context(), fmt.Sprint("new ", i)); errors.Is(err, limiter.ErrOverloaded) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != 10 {
			t.Errorf("%d of 10 too many are refused", n)
		}
		all.Wait()
		if n := refused.Load(); n != 10 {
			t.Errorf("%d are refused", n)
		}
	})
}
