package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// caller is the i-th of many.
func caller(i int) limiter.Demand {
	return limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint("caller ", i))}
}

// used returns what e says is used for d.
func used(t *testing.T, e *limiter.Engine, d limiter.Demand) int64 {
	t.Helper()
	got, err := e.Check(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return got.Used
}

// TestSubtractionIsNoYoungerThanAStoreTimeout lets one subtraction hang, as when
// the process is paused, so that the next tick comes late and the one after it at
// once.
func TestSubtractionIsNoYoungerThanAStoreTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		policy := policyOf("fixed-window", 1, 24*time.Hour)
		e, other := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
		running(t, e)
		acknowledged := make(map[store.Key]time.Time)
		var mu sync.Mutex
		subtractions := 0
		s.onWrite = func(w *store.Write) error {
			mu.Lock()
			since, hang := time.Since(acknowledged[w.Key]), false
			if w.Add[0].Units > 0 {
				acknowledged[w.Key] = time.Now()
			} else {
				subtractions++
				hang = subtractions%3 == 1
			}
			mu.Unlock()
			if w.Add[0].Units < 0 && since < timeout {
				t.Errorf("subtracted %v after the addition was acknowledged", since)
			}
			if hang {
				time.Sleep(900 * time.Millisecond)
			}
			return nil
		}
		const callers = 40
		for i := range callers {
			_, _ = other.Take(t.Context(), caller(i))
			if d, err := e.Take(t.Context(), caller(i)); err != nil || d.Allowed {
				t.Fatal(d.Allowed, err)
			}
			time.Sleep(110 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if subtractions != callers {
			t.Errorf("%d subtractions for %d denials", subtractions, callers)
		}
	})
}

// TestUnitsAreDiscountedOnlyUntilTheirSubtractionBegins has a read begin before a
// subtraction and see it: to leave its units out once more would admit too many.
func TestUnitsAreDiscountedOnlyUntilTheirSubtractionBegins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("fixed-window", 2, 24*time.Hour)
		e, other := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
		running(t, e)
		mustTake(t, other)
		mustTake(t, other)
		if mustTake(t, e).Allowed {
			t.Fatal("three of two")
		}
		time.Sleep(timeout - 50*time.Millisecond)
		store.set(func() { store.readTakes = timeout - 50*time.Millisecond }) // the subtraction is made meanwhile
		if d := mustTake(t, e); d.Allowed || d.Used != 2 {
			t.Errorf("allowed %v, used %d, want denied at 2", d.Allowed, d.Used)
		}
		if _, writes := store.counts(); writes != 4 {
			t.Errorf("%d writes: the subtraction was not made during the read", writes)
		}
	})
}

func TestTakeBacksKeepUpWithManyCallers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		store.set(func() { store.writeTakes, store.readTakes = 2*time.Millisecond, 2*time.Millisecond })
		opened := 0
		guarded := breaker.New(store, &breaker.Options{OnChange: func(closed bool) {
			if !closed {
				opened++
			}
		}})
		e := newEngine(t, guarded, 0, policy.Policy{Name: "p", Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 1, Window: 30 * time.Second},
			{Algorithm: "fixed-window", Limit: 30, Window: 24 * time.Hour},
		}})
		running(t, e)
		const callers = 1000
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range 2 {
					_, _ = e.Take(context.Background(), caller(i))
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		twice := 0
		for i := range callers {
			d, err := e.Check(t.Context(), caller(i))
			if err != nil {
				t.Fatal(err)
			}
			if d.Limits()[1].Used > 1 {
				twice++
			}
		}
		if twice > 0 || opened > 0 {
			t.Errorf("%d of %d callers are charged twice for the day; the breaker opened %d times over a healthy store", twice, callers, opened)
		}
	})
}

func TestOnlyTheDeniedPartOfABatchIsTakenBack(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			store.set(func() { store.writeTakes = time.Millisecond })
			e := newEngine(t, store, 0, policyOf(algorithm, 5, 24*time.Hour))
			running(t, e)
			if allowed, failed := takeAtOnce(e, 9); allowed != 5 || len(failed) > 0 {
				t.Fatalf("%d of 9 allowed, errors %v", allowed, failed)
			}
			time.Sleep(time.Minute)
			if got := used(t, newEngine(t, store, 0, policyOf(algorithm, 5, 24*time.Hour)), somebody); got != 5 {
				t.Errorf("used %d, want the 5 that were admitted", got)
			}
		})
	}
}

// TestTakesThatFailedDuringAnOutageAreTakenBack has the store keep what it is
// given for five seconds, and lose its answers.
func TestTakesThatFailedDuringAnOutageAreTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("sliding-log", 5, 24*time.Hour))
		running(t, e)
		until := time.Now().Add(5 * time.Second)
		s.onWrite = func(w *store.Write) error {
			if time.Now().After(until) {
				return nil
			}
			if len(w.Events) > 0 {
				_ = s.Store.Write(context.Background(), w)
			}
			return store.ErrUnavailable
		}
		for range 3 {
			if _, err := e.Take(t.Context(), somebody); err == nil {
				t.Fatal("no error")
			}
		}
		time.Sleep(time.Minute)
		if got := used(t, e, somebody); got != 0 {
			t.Errorf("%d used a minute later, of takes that were answered by errors", got)
		}
	})
}

// TestWhatStaysWhenTheReadFails tells takes that nobody was admitted for from what
// was recorded, or let pass in the store's place.
func TestWhatStaysWhenTheReadFails(t *testing.T) {
	for _, c := range []struct {
		name string
		op   count.Op
		on   policy.OnStoreError
		used int64
	}{
		{"a take, denied", count.OpTake, policy.OnStoreErrorDeny, 0},
		{"a take, allowed", count.OpTake, policy.OnStoreErrorAllow, 1},
		{"a record", count.OpRecord, policy.OnStoreErrorDeny, 1},
	} {
		for _, algorithm := range writtenFirst() {
			bubble(t, c.name+", "+algorithm, func(t *testing.T) {
				s := newFakeStore()
				policy := policyOf(algorithm, 5, 24*time.Hour)
				policy.OnStoreError = c.on
				e := newEngine(t, s, 0, policy)
				running(t, e)
				s.set(func() { s.afterRead = func(*store.State) error { return store.ErrUnavailable } })
				_, _ = operation(e, c.op)(t.Context(), somebody)
				s.set(func() { s.afterRead = nil })
				time.Sleep(time.Minute)
				if got := used(t, newEngine(t, s, 0, policy), somebody); got != c.used {
					t.Errorf("used %d a minute later, want %d", got, c.used)
				}
			})
		}
	}
}

func TestRemovalThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		policy := policyOf("sliding-log", 1, time.Hour)
		e := newEngine(t, s, 0, policy)
		running(t, e)
		mustTake(t, newEngine(t, s, 0, policy))
		var removals atomic.Int32
		s.onWrite = func(w *store.Write) error {
			if len(w.Remove) > 0 && removals.Add(1) <= 3 {
				return store.ErrUnavailable
			}
			return nil
		}
		if mustTake(t, e).Allowed {
			t.Fatal("two of one")
		}
		time.Sleep(time.Minute)
		if got, tries := used(t, e, somebody), removals.Load(); got != 1 || tries != 4 {
			t.Errorf("used %d after %d removals, want 1 after 4", got, tries)
		}
	})
}

// TestSubtractionIsNeverRepeated has one stored and its answer lost: made again it
// would make room for one too many. One that was surely not stored is made again.
func TestSubtractionIsNeverRepeated(t *testing.T) {
	notStored := errors.Join(store.ErrUnavailable, store.ErrNotStored)
	for _, c := range []struct {
		name   string
		err    error
		stored bool
	}{
		{"stored, and the answer lost", store.ErrUnavailable, true},
		{"not stored", notStored, false},
	} {
		bubble(t, c.name, func(t *testing.T) {
			s := newFakeStore()
			policy := policyOf("fixed-window", 2, 24*time.Hour)
			e, other := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
			running(t, e)
			mustTake(t, other)
			mustTake(t, other)
			var lost atomic.Bool // its answer
			s.set(func() {
				s.onWrite = func(w *store.Write) error {
					if w.Add[0].Units > 0 || lost.Swap(true) {
						return nil
					}
					if c.stored {
						_ = s.Store.Write(context.Background(), w)
					}
					return c.err
				}
			})
			if mustTake(t, e).Allowed {
				t.Fatal("three of two")
			}
			time.Sleep(time.Minute)
			if !lost.Load() {
				t.Error("nothing was subtracted")
			}
			if got := used(t, other, somebody); got != 2 {
				t.Errorf("used %d a minute later, want 2", got)
			}
		})
	}
}

func TestEngineTakesBackBeforeItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("fixed-window", 1, 24*time.Hour)
		e := newEngine(t, store, 0, policy)
		mustTake(t, newEngine(t, store, 0, policy))
		ctx, cancel := context.WithCancel(t.Context())
		mustTake(t, e) // denied
		denied := time.Now()
		cancel()
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
		if last := store.last(); last.Add[0].Units != -1 {
			t.Errorf("the last write is %+v, want a subtraction", last)
		}
		if took := time.Since(denied); took < timeout || took > 2*time.Second {
			t.Errorf("ended after %v, want a store timeout or a little more", took)
		}
	})
}

// TestAttemptThatFailsAfterADenial has another instance's unit deny the first
// attempt and leave before the second, which fails: the denial is the answer, and
// nothing stays counted.
func TestAttemptThatFailsAfterADenial(t *testing.T) {
	notStored := errors.Join(store.ErrUnavailable, store.ErrNotStored)
	for _, c := range []struct {
		name   string
		on     policy.OnStoreError
		err    error
		stored bool // all the same
	}{
		{"not stored", policy.OnStoreErrorDeny, notStored, false},
		{"lost", policy.OnStoreErrorDeny, store.ErrUnavailable, false},
		{"stored, and the answer lost", policy.OnStoreErrorDeny, store.ErrUnavailable, true},
		{"stored, and the policy allows without the store", policy.OnStoreErrorAllow, store.ErrUnavailable, true},
	} {
		bubble(t, c.name, func(t *testing.T) {
			s := newFakeStore()
			policy := policyOf("sliding-log", 1, time.Hour)
			policy.OnStoreError = c.on
			e := newEngine(t, s, 0, policy)
			running(t, e)
			appends := 0
			s.onWrite = func(w *store.Write) error {
				if len(w.Events) == 0 {
					return nil
				}
				if appends++; appends == 1 {
					passingUnit(s, w)
					return nil
				}
				if c.stored {
					_ = s.Store.Write(context.Background(), w)
				}
				return c.err
			}
			if d := mustTake(t, e); d.Allowed || d.Degraded || d.Recorded != count.RecordedNo {
				t.Errorf("allowed %v, degraded %v, recorded %s, want the first attempt's denial", d.Allowed, d.Degraded, d.Recorded)
			}
			if appends != 2 {
				t.Errorf("%d attempts, want 2", appends)
			}
			s.set(func() { s.onWrite = nil })
			time.Sleep(time.Minute)
			if got := used(t, e, somebody); got != 0 {
				t.Errorf("used %d a minute later", got)
			}
		})
	}
}

// TestSecondAttemptHasIDsOfItsOwn looks at what is written: the tombstone of an id
// that was removed would hide an event that is stored under it again.
func TestSecondAttemptHasIDsOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("sliding-log", 1, time.Hour))
		appends := 0
		ids := make(map[store.EventID]bool)
		s.onWrite = func(w *store.Write) error {
			for _, event := range w.Events {
				ids[event.ID] = true
				if appends++; appends == 1 {
					passingUnit(s, w)
				}
			}
			return nil
		}
		if !mustTake(t, e).Allowed {
			t.Error("denied, though the other unit is gone")
		}
		if appends != 2 || len(ids) != 2 {
			t.Errorf("%d ids in %d attempts, want 2 in 2", len(ids), appends)
		}
	})
}

// passingUnit stores another instance's unit beside w, for less than the shortest
// wait of a second attempt is likely to be.
func passingUnit(s *fakeStore, w *store.Write) {
	now := store.InstantOf(time.Now())
	unit := store.Event{ID: store.NewEventIDs().Next(now), At: now, Cost: 1}
	key, logs := w.Key, w.Logs
	_ = s.Store.Write(context.Background(), &store.Write{Key: key, Events: []store.Event{unit}, Logs: logs})
	time.AfterFunc(time.Nanosecond, func() {
		_ = s.Store.Write(context.Background(), &store.Write{Key: key, Remove: []store.EventID{unit.ID}, Logs: logs})
	})
}

// TestFlakyStoreNeverAdmitsMore fails every third write of many engines.
func TestFlakyStoreNeverAdmitsMore(t *testing.T) {
	const engines, limit = 8, 3
	for range 100 {
		inBubble(t, func(t *testing.T) {
			s := newFakeStore()
			s.set(func() { s.readTakes, s.writeTakes = time.Millisecond, time.Millisecond })
			var mu sync.Mutex
			writes := 0
			s.onWrite = func(*store.Write) error {
				mu.Lock()
				defer mu.Unlock()
				if writes++; writes%3 == 0 {
					return store.ErrUnavailable
				}
				return nil
			}
			admitted := make(chan int, engines)
			for range engines {
				e := newEngine(t, s, 0, policyOf("sliding-log", limit, time.Hour))
				go func() { n, _ := takeAtOnce(e, 2); admitted <- n }()
			}
			total := 0
			for range engines {
				total += <-admitted
			}
			if total > limit {
				t.Errorf("%d of %d admitted", total, limit)
			}
		})
	}
}
