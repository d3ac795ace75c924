package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// These tests hold the conditions that "counted never admits more than the limit"
// rests on. Each fails when the engine leaves its condition out.

func TestReadIsLongEnoughForTheWholeBatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 10, time.Hour)
		a, b := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
		for range 8 {
			mustTake(t, a)
		}
		// One take holds the key, and is admitted as the ninth, so that nothing tells of a
		// full limit, while six more join behind it and the tenth is taken elsewhere: a read
		// of L + 1 rows would show them their own six, five of the ten, and room for five.
		store.set(func() { store.writeTakes = 10 * time.Millisecond })
		var tenth sync.WaitGroup
		tenth.Go(func() {
			time.Sleep(5 * time.Millisecond)
			mustTake(t, a)
		})
		if allowed, failed := takeAtOnce(b, 7); allowed != 1 || len(failed) > 0 {
			t.Errorf("%d of 7 admitted where one fits, errors %v", allowed, failed)
		}
		tenth.Wait()
	})
}

func TestCostsBeyondWhatIsKnownAreReadFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("sliding-log", 10, time.Hour))
		for range 8 {
			mustTake(t, e)
		}
		_, before := store.counts()
		big := somebody
		big.Cost = 5
		if d, err := e.Take(t.Context(), big); err != nil || d.Allowed {
			t.Fatalf("5 more of 2 left: %+v, %v", d.Verdict, err)
		}
		if _, after := store.counts(); after != before {
			t.Errorf("a cost that does not fit was written: it denies others meanwhile")
		}
	})
}

func TestOwnUnitsMissingFromTheRead(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		p := policyOf(algorithm, 10, time.Hour)
		p.Consistency = policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
		bubble(t, algorithm+", levels that promise", func(t *testing.T) {
			s := newFakeStore()
			s.set(func() { s.onWrite = func(*store.Write) error { return errDropped } })
			_, err := newEngine(t, s, 0, p).Take(t.Context(), somebody)
			var failed *count.StoreError
			if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
				t.Errorf("%v, want an outcome that is unknown", err)
			}
		})
		bubble(t, algorithm+", levels that do not", func(t *testing.T) {
			weak := p
			if inLog(algorithm) {
				weak.Consistency.Write = policy.LevelAny
			} else {
				weak.Consistency.Write, weak.Consistency.Read = policy.LevelOne, policy.LevelOne
			}
			s := newFakeStore()
			s.set(func() { s.onWrite = func(*store.Write) error { return errDropped } })
			if d := mustTake(t, newEngine(t, s, 0, weak)); !d.Allowed {
				t.Errorf("denied: %+v", d.Verdict)
			}
		})
	}
}

func TestClocksThatDifferByTwiceTheTolerance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 1, 10*time.Second)
		slow, fast := newEngine(t, store, -tolerance, policy), newEngine(t, store, tolerance, policy)
		start := time.Now()
		mustTake(t, slow)
		time.Sleep(10*time.Second - time.Millisecond)
		if d := mustTake(t, fast); d.Allowed {
			t.Errorf("two of one within %v", time.Since(start))
		}
		time.Sleep(2*tolerance + time.Millisecond)
		if d := mustTake(t, fast); !d.Allowed {
			t.Errorf("still denied after the window and twice the tolerance: %+v", d.Verdict)
		}
		// Writes of an instance whose clock is ahead lie in this one's future.
		time.Sleep(20 * time.Second)
		mustTake(t, fast)
		another := newEngine(t, store, -tolerance, policy) // which knows of no full log, and writes first
		if d := mustTake(t, another); d.Allowed {
			t.Error("an event of the future was not counted")
		}
	})
}

func TestSlidingTailCountsTheWindowAfterItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) { // a bubble starts on a whole minute
		store := newFakeStore()
		policy := policyOf("sliding-tail", 1, 10*time.Second)
		slow, fast := newEngine(t, store, -tolerance, policy), newEngine(t, store, tolerance, policy)
		time.Sleep(30*time.Second - tolerance/2)
		mustTake(t, fast)
		if d := mustTake(t, slow); d.Allowed {
			t.Error("two of one: the count of the next window was not read")
		}
	})
}

func TestAnswerThatComesTooLateAdmitsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("sliding-log", 1, time.Hour))
		s.beforeRead = func(*store.Query) { time.Sleep(timeout + time.Millisecond) } // deaf to its context
		start := time.Now()
		_, err := e.Take(t.Context(), somebody)
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestLowerBoundIsOfTheBatchAndNotOfTheRead has an event leave the window between
// the write of a batch and its read.
func TestLowerBoundIsOfTheBatchAndNotOfTheRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 1, 10*time.Second)
		a, b := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
		mustTake(t, a)
		time.Sleep(10*time.Second + 2*tolerance - 50*time.Millisecond)
		store.set(func() { store.writeTakes = 100 * time.Millisecond })
		if d := mustTake(t, b); d.Allowed {
			t.Errorf("admitted beside an event within the window: %+v", d.Verdict)
		}
	})
}

func TestTimeToLiveOfEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		p := policy.Policy{Name: "p", Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 1, Window: 1500 * time.Millisecond},
			{Algorithm: "sliding-log", Limit: 10, Window: time.Hour},
			{Algorithm: "sliding-log", Limit: 20, Window: 24 * time.Hour},
		}}
		e := limiter.New(s, &limiter.Options{ClockTolerance: tolerance, StoreTimeout: 900 * time.Millisecond})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		mustTake(t, e)
		want := map[store.Span]time.Duration{
			// ceil(window + 2 × 100 ms + 900 ms) + 1 s for whole seconds + 1 s for the nodes' clocks
			store.SpanHour: time.Hour + 4*time.Second,
			store.SpanDay:  24*time.Hour + 4*time.Second,
		}
		for _, log := range s.writes[0].Logs {
			if log.TTL != want[log.Span] {
				t.Errorf("span %d: TTL %v, want %v", log.Span, log.TTL, want[log.Span])
			}
			delete(want, log.Span)
		}
		if len(want) > 0 {
			t.Errorf("not written: %v", want)
		}
	})
}

func TestDeniedEventsAreTakenBackAtOnceAndCountersLater(t *testing.T) {
	bubble(t, "sliding-log", func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 1, time.Hour)
		mustTake(t, newEngine(t, store, 0, policy))
		mustTake(t, newEngine(t, store, 0, policy))
		if last := store.last(); len(last.Remove) != 1 {
			t.Errorf("the last write is %+v, want a removal", last)
		}
	})
	bubble(t, "fixed-window", func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("fixed-window", 1, time.Hour)
		e := newEngine(t, store, 0, policy)
		running(t, e)
		mustTake(t, newEngine(t, store, 0, policy))
		mustTake(t, e)
		if d := mustTake(t, e); d.Allowed || d.Used != 1 {
			t.Errorf("%+v, want used 1: this engine knows what it is going to take back", d.Verdict)
		}
		time.Sleep(timeout - time.Millisecond)
		if _, writes := store.counts(); writes != 2 {
			t.Errorf("%d writes: subtracted before a store timeout was over, or not added", writes)
		}
		time.Sleep(timeout + 2*time.Millisecond)
		if _, writes := store.counts(); writes != 3 || store.last().Add[0].Units != -1 {
			t.Errorf("%d writes, the last %+v: want one subtraction", writes, store.last())
		}
		time.Sleep(time.Minute)
		if _, writes := store.counts(); writes != 3 {
			t.Errorf("%d writes: subtracted again", writes)
		}
	})
}

func TestCounterThatTimedOutIsNeverSubtractedFrom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("fixed-window", 5, time.Hour))
		running(t, e)
		s.set(func() { s.writeTakes = time.Minute })
		if _, err := e.Take(t.Context(), somebody); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		s.set(func() { s.writeTakes = 0 })
		time.Sleep(10 * timeout)
		if _, writes := s.counts(); writes != 1 {
			t.Errorf("%d writes, want only the addition that timed out", writes)
		}
	})
}

func TestKeyOverItsLimitIsOnlyRead(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			e := newEngine(t, store, 0, policyOf(algorithm, 1, time.Minute))
			mustTake(t, e)
			mustTake(t, e)
			_, before := store.counts()
			for range 100 {
				if mustTake(t, e).Allowed {
					t.Fatal("past the limit")
				}
			}
			if _, after := store.counts(); after != before {
				t.Errorf("100 denials cost %d writes, each of them a tombstone or a count to take back", after-before)
			}
			time.Sleep(2 * time.Minute)
			if !mustTake(t, e).Allowed {
				t.Error("denied for ever")
			}
		})
	}
}

// The instance that took the last unit of a log knows that the next is one too many: it is not
// written to be removed again. The read sees what others have refunded meanwhile.
func TestFullLogIsReadBeforeItIsWritten(t *testing.T) {
	full := func(test func(t *testing.T, store *fakeStore, e, other *limiter.Engine)) {
		bubble(t, "", func(t *testing.T) {
			store := newFakeStore()
			policy := policyOf("sliding-log", 2, time.Hour)
			e, other := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
			mustTake(t, e)
			mustTake(t, e)
			test(t, store, e, other)
		})
	}
	full(func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		_, before := store.counts()
		if d := mustTake(t, e); d.Allowed || d.Used != 2 {
			t.Errorf("%+v: the third", d)
		}
		if _, after := store.counts(); after != before {
			t.Errorf("%d writes for a take that could not be", after-before)
		}
	})
	full(func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		must(t, other.Reset(t.Context(), somebody.Policy, somebody.Identifier))
		if d := mustTake(t, e); !d.Allowed || d.Used != 1 {
			t.Errorf("%+v: want the first after a reset elsewhere, at once", d)
		}
	})
}

// A log that was filled is read first for as long as it is full by the events that were known then, and no longer: a take
// after the answered wait costs one write and one read.
func TestFullLogIsWrittenFirstOnceThereIsRoom(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("sliding-log", 1, 30*time.Second))
		mustTake(t, e)
		time.Sleep(30*time.Second + 2*tolerance)
		reads, writes := store.counts()
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%+v: want the next", d)
		}
		if readsNow, writesNow := store.counts(); readsNow != reads+1 || writesNow != writes+1 {
			t.Errorf("%d reads and %d writes, want one of each", readsNow-reads, writesNow-writes)
		}
	})
}

func TestManyEnginesOverASlowStore(t *testing.T) {
	const engines, limit = 16, 5
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			store.set(func() { store.readTakes, store.writeTakes = time.Millisecond, time.Millisecond })
			admitted := make(chan int, engines)
			for range engines {
				e := newEngine(t, store, 0, policyOf(algorithm, limit, time.Hour))
				go func() {
					allowed, failed := takeAtOnce(e, 10)
					if len(failed) > 0 {
						t.Error(failed)
					}
					admitted <- allowed
				}()
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

func TestInstancesThatMeetAtTheLimitUseAllOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		store.set(func() { store.readTakes, store.writeTakes = 200*time.Microsecond, 200*time.Microsecond })
		policy := policyOf("sliding-log", 1, time.Minute)
		a, b := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
		both := 0
		for range 100 {
			results := make(chan bool, 2)
			for _, e := range []*limiter.Engine{a, b} {
				go func() {
					d, err := e.Take(context.Background(), somebody)
					results <- err == nil && d.Allowed
				}()
			}
			first, second := <-results, <-results
			switch {
			case first && second:
				t.Fatal("two of one")
			case !first && !second:
				both++
			}
			time.Sleep(2 * time.Minute)
		}
		if both > 20 { // without the retry nearly all of the hundred
			t.Errorf("both were denied %d times of 100", both)
		}
	})
}

func TestEngineErrors(t *testing.T) {
	e := newEngine(t, newFakeStore(), 0, policyOf("sliding-log", 3, time.Hour))
	long := keys.Identifier(fmt.Sprintf("%01025d", 1))
	for _, c := range []struct {
		demand limiter.Demand
		want   error
		field  string
	}{
		{limiter.Demand{Policy: "none", Identifier: "x"}, limiter.ErrUnknownPolicy, ""},
		{limiter.Demand{Policy: "p"}, limiter.ErrInvalid, "identifier"},
		{limiter.Demand{Policy: "p", Identifier: long}, limiter.ErrInvalid, "identifier"},
		{limiter.Demand{Policy: "p", Identifier: "x", Cost: -1}, limiter.ErrInvalid, "cost"},
		{limiter.Demand{Policy: "p", Identifier: "x", Cost: policy.MaxCost + 1}, limiter.ErrInvalid, "cost"},
		{limiter.Demand{Policy: "p", Identifier: "x", Cost: 4}, limiter.ErrCostTooLarge, ""},
	} {
		_, err := e.Take(t.Context(), c.demand)
		var field *limiter.FieldError
		if !errors.Is(err, c.want) || c.field != "" && (!errors.As(err, &field) || field.Field != c.field) {
			t.Errorf("%+v: %v, want %v of %q", c.demand, err, c.want, c.field)
		}
	}
}

// One instance that counts alone decides as its algorithm does, below the limit and at it.
func TestOneInstanceDecidesAsTheAlgorithm(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			const window = time.Minute
			rng := rand.New(rand.NewPCG(1, 2))
			e := toldEngine(t, newFakeStore(), inRows(algorithm, 10, window))
			running(t, e)
			counts := window
			if inLog(algorithm) {
				counts += 2 * tolerance
			}
			pure := make(map[keys.Identifier]*limiter.Machine)
			denied := 0
			for range 3000 {
				time.Sleep(time.Duration(rng.Int64N(int64(window / 150))))
				d := limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(rng.IntN(1 + rng.IntN(60)))), Cost: 1 + rng.Int64N(2)}
				op := count.OpTake
				if rng.IntN(30) == 0 {
					op = count.OpRecord
				}
				if pure[d.Identifier] == nil {
					pure[d.Identifier] = limiter.NewMachine(policyOf(algorithm, 10, counts))
				}
				want := pure[d.Identifier].Do(op, store.InstantOf(time.Now()), d.Cost)
				got := mustDo(t, e, limiter.Call{Op: op, Demands: []limiter.Demand{d}})
				late := (want.RetryAfter - got.RetryAfter).Abs()
				if want.Allowed != got.Allowed || min(want.Used, 10) != min(got.Used, 10) || late > 2*time.Millisecond {
					t.Fatalf("%v: %s of %d: %+v\nwant %+v", time.Now(), op, d.Cost, got.Decision, want)
				}
				if !got.Allowed {
					denied++
				}
			}
			if denied < 100 {
				t.Errorf("%d of 3000 denied", denied)
			}
		})
	}
}
