package limiter_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

const (
	// writeTakes is what a write takes of the store in the tests of room.
	writeTakes = 10 * time.Millisecond
	// workers is how many are written at the same time, and roomKeys how many wait at most.
	workers  = 64
	roomKeys = 10 * workers
)

// roomy returns an engine with room for roomKeys.
func roomy(t *testing.T, store *fakeStore, policies ...limiter.Policy) *limiter.Engine {
	t.Helper()
	o := limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil)}
	return instanceWith(t, store, o.WithRoom(roomKeys), policies...)
}

// roomless returns an engine that as many keys wait to be written of as can, of a store that is
// writing them, and what takes of a new key. The next are written half a write later.
func roomless(t *testing.T, store *fakeStore) (e *limiter.Engine, take func(ctx context.Context, name string) (limiter.Decision, error)) {
	t.Helper()
	e = roomy(t, store, inMemory("sliding-log", 3, time.Hour))
	fill(t, e, "p")
	return e, func(ctx context.Context, name string) (limiter.Decision, error) {
		return e.Take(ctx, limiter.Demand{Policy: "p", Identifier: limiter.Identifier(name)})
	}
}

// fill has as many keys wait as can, under a policy.
func fill(t *testing.T, e *limiter.Engine, policy string) {
	t.Helper()
	take := func(i int) {
		if _, err := e.Take(t.Context(), limiter.Demand{Policy: policy, Identifier: limiter.Identifier(fmt.Sprint("fill ", i))}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range roomKeys {
		take(i)
	}
	synctest.Wait()
	time.Sleep(writeTakes + writeTakes/2)
	synctest.Wait()
	for i := roomKeys; e.Behind().Waiting < roomKeys; i++ {
		take(i)
	}
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
		time.Sleep(time.Millisecond)
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
		time.Sleep(writeTakes/2 - time.Millisecond)
		synctest.Wait()
		if n := last.Load(); n < 60 || n > 70 {
			t.Errorf("after one write of 64 keys, %d have come in", n)
		}
		all.Wait()
		if took := time.Since(began); took > 5*writeTakes {
			t.Errorf("%d waited for %v", callers, took)
		}
		time.Sleep(time.Second) // until it is written
		wantDatedByTheirIDs(t, store)
		store.set(func() {
			for _, w := range store.writes {
				for _, event := range w.Events {
					if late := event.At.Sub(limiter.InstantOf(began)); late >= 0 && late < writeTakes/2-time.Millisecond {
						t.Errorf("a unit is dated %v after its caller came, when there was no room", late)
					}
				}
			}
		})
	})
}

// Who needs no room waits for none: a key that waits already, one that is denied, and checks,
// which take none from others.
func TestLocalWhoNeedsNoRoom(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		writesSlowly(store)
		e, take := roomless(t, store)
		began := time.Now()
		for used := range int64(3) { // of a limit of 3
			if d, err := take(t.Context(), fmt.Sprint("fill ", roomKeys)); err != nil || d.Allowed != (used < 2) {
				t.Errorf("%+v, %v", d, err)
			}
		}
		for range maxChecks {
			if _, err := e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(rand.Text())}); err != nil {
				t.Fatal(err)
			}
		}
		if n := e.Behind().Waiting; n > roomKeys {
			t.Errorf("%d keys wait", n)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("they waited %v", waited)
		}
		if _, err := take(t.Context(), "another"); err != nil || time.Since(began) > writeTakes {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
	bubble(t, "denied", func(t *testing.T) {
		store := newFakeStore()
		e := roomy(t, store, inMemory("sliding-log", 1, time.Hour))
		takes(t, e, 1)
		nextSync()
		writesSlowly(store)
		fill(t, e, "p")
		began := time.Now()
		if d := mustTake(t, e); d.Allowed || d.Recorded != limiter.RecordedNo {
			t.Errorf("%+v", d)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("it waited %v", waited)
		}
	})
}

const maxChecks = 1000

// A call of several demands that memory denies waits for no room either, nor does one in shadow
// mode that counts nothing.
func TestLocalDeniedWithoutRoom(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		local, far := inMemory("sliding-log", 1, time.Hour), policyOf("sliding-log", 5, time.Hour)
		local.OnStoreError = limiter.OnStoreErrorAllow
		shadow := local
		shadow.Mode = limiter.ModeShadow
		e := roomy(t, store, named("p", local), named("shadow", shadow), named("far", far), named("fill", inMemory("sliding-log", 3, time.Hour)))
		call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{
			{Policy: "p", Identifier: "a"}, {Policy: "far", Identifier: "a"},
		}}
		would := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "shadow", Identifier: "a"}}}
		mustDo(t, e, call)
		mustDo(t, e, would)
		nextSync()
		writesSlowly(store)
		fill(t, e, "fill")
		began := time.Now()
		if a := mustDo(t, e, call); a.Allowed || a.Recorded != limiter.RecordedNo || !a.Demands[1].WouldAllow {
			t.Errorf("%+v", a)
		}
		if a := mustDo(t, e, would); !a.Allowed || a.WouldAllow || a.Degraded {
			t.Errorf("%+v", a)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("they waited %v", waited)
		}
		if got := usedBy(t, e, call.Demands[1]); got != 1 {
			t.Errorf("used %d of the other policy", got)
		}
	})
}

// Calls of several demands, with a key, of buckets: all wait for room, and count once.
func TestLocalWaitsForRoomWhateverItIs(t *testing.T) {
	keyed := limiter.Call{Op: limiter.OpTake, Demands: both[:1], IdempotencyKey: "k"}
	for name, c := range map[string]struct {
		algorithm string
		call      limiter.Call
	}{
		"several":         {"sliding-log", limiter.Call{Op: limiter.OpTake, Demands: both}},
		"a record":        {"fixed-window", limiter.Call{Op: limiter.OpRecord, Demands: both[:1]}},
		"a key":           {"sliding-log", keyed},
		"a bucket":        {"token-bucket", limiter.Call{Op: limiter.OpTake, Demands: both[:1]}},
		"a bucket, keyed": {"leaky-bucket", keyed},
	} {
		bubble(t, name, func(t *testing.T) {
			store := newFakeStore()
			policies := twoPolicies(limitOf(c.algorithm, 10), limitOf(c.algorithm, 10))
			policies[0].Guarantee, policies[1].Guarantee = limiter.GuaranteeLocal, limiter.GuaranteeLocal
			e := roomy(t, store, append(policies, named("fill", inMemory("sliding-log", 3, time.Hour)))...)
			writesSlowly(store)
			fill(t, e, "fill")
			began := time.Now()
			for range 2 {
				a := mustDo(t, e, c.call)
				if waited := time.Since(began); a.Recorded != limiter.RecordedYes || waited < writeTakes/2 || waited > 10*writeTakes {
					t.Errorf("%s after %v", a.Recorded, waited)
				}
			}
			want := int64(2)
			if c.call.IdempotencyKey != "" {
				want = 1
			}
			if got := usedBy(t, e, both[0]); got != want {
				t.Errorf("used %d, want %d", got, want)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if n := e.Behind().Waiting; n != 0 {
				t.Errorf("%d keys wait when all is written", n)
			}
		})
	}
}

func named(name string, p limiter.Policy) limiter.Policy {
	p.Name = name
	return p
}

// However long its interval is, what waits is written before there is no more room.
func TestLocalWritesBeforeRoomRunsOut(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		o := limiter.Options{StoreTimeout: timeout, Local: embedded.New(nil), SyncInterval: 10 * time.Second}
		e := instanceWith(t, store, o.WithRoom(roomKeys), inMemory("sliding-log", 3, time.Hour))
		for i := range 10 * roomKeys {
			if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(i))}); err != nil {
				t.Fatal(i, err)
			}
			if i%(roomKeys/4) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// While the store fails, it is not asked more often for there being no room.
func TestLocalDoesNotHurryInAnOutage(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		store.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable }
		wantFewWrites(t, store)
	})
	bubble(t, "of some keys", func(t *testing.T) {
		store := newFakeStore()
		store.onWrite = func(w *limiter.Write) error {
			if w.Key.Prefix()%10 > 0 {
				return limiter.ErrUnavailable
			}
			return nil
		}
		wantFewWrites(t, store)
	})
}

func wantFewWrites(t *testing.T, store *fakeStore) {
	t.Helper()
	fails := store.onWrite
	var tried atomic.Int64
	store.onWrite = func(w *limiter.Write) error { tried.Add(1); return fails(w) }
	e := roomy(t, store, inMemory("sliding-log", 3, time.Hour))
	began := time.Now()
	for i := 0; time.Since(began) < time.Second; i++ { // a new key each millisecond
		_, _ = e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(i))})
		time.Sleep(time.Millisecond)
	}
	if n := tried.Load(); n > 6*roomKeys {
		t.Errorf("%d writes in a second", n)
	}
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
		for i := range 3 * workers { // which are let in after 5, 15 and 25 ms
			ask(t.Context(), fmt.Sprint("new ", i), nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*writeTakes)
		defer cancel()
		for range workers {
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
		for i := range workers { // whose places were being written
			if _, err := take(t.Context(), fmt.Sprint("last ", i)); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []time.Duration{timeout / 2, timeout / 2, 0} {
			began := time.Now()
			_, err := take(t.Context(), fmt.Sprint("new ", i))
			if took := time.Since(began); !errors.Is(err, limiter.ErrOverloaded) || took != want {
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
