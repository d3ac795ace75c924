package limiter_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A call whose turn for one key does not come.
func TestTurnThatDoesNotCome(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "token-bucket"} {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			e := newEngine(t, s, 0, twoPolicies(limitOf(algorithm, 5), limitOf("sliding-log", 5))...)
			mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: both}) // the secret is there
			s.set(func() { s.writeTakes = 450 * time.Millisecond })
			var all sync.WaitGroup
			all.Go(func() { _, _ = e.Take(t.Context(), both[1]) })
			time.Sleep(10 * time.Millisecond)
			a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: both})
			recorded := count.RecordedNo // a bucket is decided last
			if algorithm == "sliding-log" {
				recorded = count.RecordedUnknown // its unit can't be taken back in time
			}
			if failed := (*count.StoreError)(nil); !errors.As(err, &failed) || a.Allowed || failed.Recorded != recorded {
				t.Errorf("allowed %v, %v, want recorded %s", a.Allowed, err, recorded)
			}
			all.Wait()
			s.set(func() { s.writeTakes = 0 })
			if got := usedBy(t, e, both[1]); got != 2 {
				t.Errorf("used %d by the first call and the one whose turn came", got)
			}
			time.Sleep(timeout) // the unit of the other call is taken back after its time
		})
	}
}

// A reservation in a bucket gives back, at its end, what has drained long since.
func TestEndOfAReservationInABucket(t *testing.T) {
	bubble(t, "reservation", func(t *testing.T) {
		store := embedded.New(nil)
		p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 10, Window: time.Second}}}
		e := newEngine(t, store, 0, p)
		running(t, e)
		d := somebody
		d.Cost = 10
		mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Minute})
		time.Sleep(time.Minute - 10*time.Millisecond) // drained since 59 s: the bucket is full
		admitted := int64(0)
		for range 20 {
			if got, err := e.Take(t.Context(), somebody); err == nil && got.Allowed {
				admitted++
			}
		}
		time.Sleep(20 * time.Millisecond) // the reservation ends
		for range 20 {
			if got, err := e.Take(t.Context(), somebody); err == nil && got.Allowed {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("%d admitted within 20 ms by a full bucket of 10 a second, want 10", admitted)
		}
	})
	bubble(t, "refund", func(t *testing.T) {
		store := embedded.New(nil)
		p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 10, Window: time.Minute}}}
		e := newEngine(t, store, 0, p)
		running(t, e)
		d := somebody
		d.Cost = 10
		first := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}})
		time.Sleep(time.Minute)
		mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}})
		if err := e.Refund(t.Context(), first.Receipt); err != nil {
			t.Error(err)
		}
		if a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}}); a.Allowed {
			t.Error("20 at once from a bucket of 10: the refund gave back what had drained")
		}
	})
}

// A reservation that is recorded more than two hours late.
func TestReservationRecordedLate(t *testing.T) {
	for _, s := range []string{"embedded", "shared"} {
		bubble(t, s, func(t *testing.T) {
			var store store.Store = embedded.New(nil)
			if s == "shared" {
				store = newFakeStore()
			}
			p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 10, Window: 24 * time.Hour}}}
			e := newEngine(t, store, 0, p)
			running(t, e)
			d := somebody
			d.Cost = 10
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Second})
			time.Sleep(3 * time.Second) // over: given back
			for range 10 {
				mustTake(t, e)
			}
			time.Sleep(2*time.Hour + time.Minute)
			_, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Reservation: held.Reservation})
			var field *limiter.FieldError
			if !errors.As(err, &field) || field.Field != "reservation" {
				t.Errorf("recorded two hours after its end: %v", err)
			}
			if got := usedBy(t, e, somebody); got != 10 {
				t.Errorf("used %d of 10 taken", got)
			}
			if d := mustTake(t, e); d.Allowed {
				t.Error("an eleventh is admitted in a window of 10")
			}
		})
	}
}

// A late record that surely counted nothing can be sent again, and counts once.
func TestReservationRecordedAgainAfterAFailure(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window"} {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			e := newEngine(t, s, 0, policyOf(algorithm, 10, time.Hour))
			running(t, e)
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Second})
			time.Sleep(3 * time.Second) // over: given back
			late := limiter.Call{Op: count.OpRecord, Reservation: held.Reservation}
			s.set(func() {
				s.onWrite = func(w *store.Write) error {
					if len(w.Events)+len(w.Add) > 0 {
						return errors.Join(store.ErrUnavailable, store.ErrNotStored)
					}
					return nil
				}
			})
			for range 2 {
				if _, err := e.Do(t.Context(), &late); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("without a store: %v", err)
				}
			}
			s.set(func() { s.onWrite = nil })
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if _, err := e.Do(t.Context(), &late); err != nil && !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("beside others: %v", err)
					}
				})
			}
			all.Wait()
			mustDo(t, e, late)
			if got := usedBy(t, e, somebody); got != 1 {
				t.Errorf("used %d by one reservation", got)
			}
		})
	}
}

// An idempotent call within 2 × tolerance of a reset of one of its demands.
func TestIdempotentCallAfterAReset(t *testing.T) {
	for _, op := range []count.Op{count.OpRecord, count.OpTake} {
		bubble(t, string(op), func(t *testing.T) {
			store := newFakeStore()
			policies := twoPolicies(limitOf("sliding-log", 5), limitOf("sliding-log", 5))
			if op == count.OpTake {
				policies[0].Mode = policy.ModeShadow
			}
			e := newEngine(t, store, 0, policies...)
			running(t, e)
			if err := e.Reset(t.Context(), "p", "a"); err != nil {
				t.Fatal(err)
			}
			mustDo(t, e, limiter.Call{Op: op, Demands: both, IdempotencyKey: "k"})
			time.Sleep(time.Minute)
			for _, d := range both {
				if got := usedBy(t, e, d); got != 1 {
					t.Errorf("%s: used %d by one call", d.Policy, got)
				}
			}
		})
	}
}

// Denied attempts with idempotency keys, holds, several demands: each is a tombstone.
func TestDeniedAttemptsAreOnlyRead(t *testing.T) {
	for _, how := range []string{"plain", "idempotency key", "two demands"} {
		bubble(t, how, func(t *testing.T) {
			s := newFakeStore()
			e := newEngine(t, s, 0, twoPolicies(limitOf("sliding-log", 3), limitOf("sliding-log", 1000))...)
			running(t, e)
			var removals atomic.Int64
			s.set(func() {
				s.onWrite = func(w *store.Write) error { removals.Add(int64(len(w.Remove))); return nil }
			})
			for i := range 103 {
				call := limiter.Call{Op: count.OpTake, Demands: both[:1]}
				if how == "two demands" {
					call.Demands = both
				}
				if how == "idempotency key" {
					call.IdempotencyKey = string(rune('a' + i))
				}
				mustDo(t, e, call)
				time.Sleep(time.Second)
			}
			if removals.Load() > 10 {
				t.Errorf("%d rows were removed for 100 denied takes", removals.Load())
			}
		})
	}
}

// A limit that is added by a reload is given back what it never counted.
func TestRefundAfterALimitWasAdded(t *testing.T) {
	for _, algorithm := range []string{"fixed-window", "token-bucket"} {
		bubble(t, algorithm, func(t *testing.T) {
			store := embedded.New(nil)
			p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: algorithm, Limit: 100, Window: time.Hour}}}
			e := newEngine(t, store, 0, p)
			running(t, e)
			d := somebody
			d.Cost = 10
			old := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}})
			p.Limits = append(p.Limits, policy.Limit{Algorithm: algorithm, Name: "new", Limit: 10, Window: 24 * time.Hour})
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}})
			if err := e.Refund(t.Context(), old.Receipt); err != nil {
				t.Fatal(err)
			}
			if a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}}); a.Allowed {
				t.Error("20 admitted since the limit of 10 a day is in force")
			}
		})
	}
}

// Instances' own counts: a refund on an instance that counted nothing.
func TestRefundElsewhereAndLocalCounts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("fixed-window", 10, 24*time.Hour)
		p.OnStoreError = policy.OnStoreErrorLocal
		a, b := newEngine(t, s, 0, p), newEngine(t, s, 0, p)
		running(t, a)
		running(t, b)
		var receipts []string
		for range 10 {
			receipts = append(receipts, mustDo(t, a, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}).Receipt)
		}
		for _, r := range receipts {
			if err := b.Refund(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		down := errors.Join(store.ErrUnavailable, store.ErrNotStored)
		s.set(func() {
			s.onWrite = func(*store.Write) error { return down }
			s.afterRead = func(*store.State) error { return down }
		})
		allowed, _ := takeAtOnce(b, 40)
		if allowed != 10 {
			t.Errorf("%d allowed by an instance's own counts under a limit of 10", allowed)
		}
	})
}

// A take while nobody tells the secret.
func TestTakeWhileTheSecretIsOutOfReach(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("sliding-log", 10, time.Hour))
		store.set(func() {
			store.writeTakes, store.readTakes = 200*time.Millisecond, 200*time.Millisecond
		})
		began := time.Now()
		a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		if took := time.Since(began); took > timeout {
			t.Errorf("took %v with a store timeout of %v (allowed %v, %v)", took, timeout, a.Allowed, err)
		}
	})
}

// A record whose read fails, under on_store_error: local. It may count, so there is no receipt of it.
func TestNoReceiptOfALocalDecision(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("sliding-log", 10, time.Hour)
		p.OnStoreError = policy.OnStoreErrorLocal
		e := newEngine(t, s, 0, p)
		running(t, e)
		mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		s.set(func() { s.afterRead = func(*store.State) error { return store.ErrUnavailable } })
		a := mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}})
		s.set(func() { s.afterRead = nil })
		if a.Receipt != "" || a.Recorded != count.RecordedUnknown || !a.Degraded {
			t.Errorf("receipt %q, recorded %s, degraded %v", a.Receipt, a.Recorded, a.Degraded)
		}
		time.Sleep(time.Minute)
		if got := usedBy(t, e, somebody); got != 2 {
			t.Errorf("used %d by a take and a record that was written", got)
		}
	})
}

// One reservation, recorded twice with its demands in another order.
func TestReceiptsOfOneReservation(t *testing.T) {
	for _, s := range []string{"embedded", "shared"} {
		bubble(t, s, func(t *testing.T) {
			var store store.Store = embedded.New(nil)
			if s == "shared" {
				store = newFakeStore()
			}
			e := newEngine(t, store, 0, twoPolicies(limitOf("fixed-window", 10), limitOf("fixed-window", 10))...)
			running(t, e)
			for range 5 {
				mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: both})
			}
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: time.Minute})
			one := mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: both, Reservation: held.Reservation})
			two := mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{both[1], both[0]}, Reservation: held.Reservation})
			first, second := e.Refund(t.Context(), one.Receipt), e.Refund(t.Context(), two.Receipt)
			time.Sleep(time.Minute)
			for _, d := range both {
				if got := usedBy(t, e, d); got != 5 {
					t.Errorf("%s: used %d of 5 taken, after the refunds (%v; %v) of one reservation", d.Policy, got, first, second)
				}
			}
		})
	}
}

// An idempotent take of a counter just after a reset that this instance knows of.
func TestIdempotentTakeUnderAKnownReset(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("fixed-window", 10, 24*time.Hour))
		running(t, e)
		if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		mustTake(t, e)
		mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"})
		time.Sleep(time.Minute)
		if got := usedBy(t, e, somebody); got != 2 {
			t.Errorf("used %d by two takes", got)
		}
	})
}

// A demand that was allowed without being held, and is recorded by the reservation.
func TestReservationOfWhatWasNotHeld(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		policies := twoPolicies(limitOf("fixed-window", 10), limitOf("sliding-log", 10))
		policies[0].OnStoreError = policy.OnStoreErrorAllow
		e := newEngine(t, s, 0, policies...)
		running(t, e)
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Add) > 0 {
					return errors.Join(store.ErrUnavailable, store.ErrNotStored)
				}
				return nil
			}
		})
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: time.Minute})
		s.set(func() { s.onWrite = nil })
		a := mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: both, Reservation: held.Reservation})
		for i, d := range both {
			if got := usedBy(t, e, d); got != 1 {
				t.Errorf("%s: used %d, recorded: %s", d.Policy, got, a.Demands[i].Recorded)
			}
		}
	})
}

// A turn that does not come blocks callers that were not asked.
func TestTurnThatDoesNotComeBlocksNobody(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		policies := twoPolicies(limitOf("sliding-log", 5), limitOf("sliding-log", 5))
		policies[0].BlockFor = time.Hour
		e := newEngine(t, store, 0, policies...)
		mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: both})
		store.set(func() { store.writeTakes = 450 * time.Millisecond })
		go func() { _, _ = e.Take(t.Context(), both[1]) }()
		time.Sleep(10 * time.Millisecond)
		if _, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: both}); err == nil {
			t.Error("the turn came: this test would not notice")
		}
		time.Sleep(time.Second)
		store.set(func() { store.writeTakes = 0 })
		if d, err := e.Take(t.Context(), both[0]); err != nil || d.Blocked {
			t.Errorf("blocked %v, %v: used 1 of 5, and nobody denied it", d.Blocked, err)
		}
	})
}

// Late settle of a log's hold whose window is over.
func TestLogReservationRecordedAfterItsWindow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("sliding-log", 10, time.Minute))
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Second})
		time.Sleep(2 * time.Minute)
		a := mustDo(t, e, limiter.Call{Op: count.OpRecord, Reservation: held.Reservation})
		if got := usedBy(t, e, somebody); got != 1 {
			t.Errorf("recorded: %s, used %d", a.Recorded, got)
		}
	})
}

// On the embedded store levels mean nothing, and a reload that changes them keeps counts.
func TestRefundTwiceAfterAReloadOfLevels(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		p := policyOf("fixed-window", 10, 24*time.Hour)
		e := newEngine(t, embedded.New(nil), 0, p)
		take := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}
		receipt := mustDo(t, e, take).Receipt
		take.IdempotencyKey = "k"
		mustDo(t, e, take)
		if err := e.Refund(t.Context(), receipt); err != nil {
			t.Fatal(err)
		}
		p.Consistency = policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		if again := mustDo(t, e, take); !again.Replayed {
			t.Error("an idempotent take counts twice")
		}
		if err := e.Refund(t.Context(), receipt); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("refunded twice: %v", err)
		}
	})
}

// on_store_error: local forgets that a reservation is only held.
func TestReserveLocally(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("sliding-log", 3, 24*time.Hour)
		p.OnStoreError = policy.OnStoreErrorLocal
		e := newEngine(t, s, 0, p)
		running(t, e)
		for range 3 {
			mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Second})
			time.Sleep(time.Minute)
		}
		down := errors.Join(store.ErrUnavailable, store.ErrNotStored)
		s.set(func() {
			s.onWrite = func(*store.Write) error { return down }
			s.afterRead = func(*store.State) error { return down }
		})
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("used %d of 3 by this instance's own counts, minutes after all holds have ended", d.Used)
		}
	})
}

// Both receipts of a reservation, of which one demand was not held, are refunded: each demand
// is given back once.
func TestReceiptsOfAReservationThatWasHeldInPart(t *testing.T) {
	for range 20 { // ids decide
		bubble(t, "", func(t *testing.T) {
			s := newFakeStore()
			policies := twoPolicies(limitOf("fixed-window", 10), limitOf("sliding-log", 10))
			policies[1].OnStoreError = policy.OnStoreErrorAllow
			e := newEngine(t, s, 0, policies...)
			running(t, e)
			for range 5 {
				mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: both})
			}
			s.set(func() {
				s.onWrite = func(w *store.Write) error {
					if len(w.Events) > 0 {
						return errors.Join(store.ErrUnavailable, store.ErrNotStored)
					}
					return nil
				}
			})
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: time.Minute})
			s.set(func() { s.onWrite = nil })
			time.Sleep(5 * time.Second)
			settle := limiter.Call{Op: count.OpRecord, Demands: both, Reservation: held.Reservation}
			for _, a := range []limiter.Answer{mustDo(t, e, settle), mustDo(t, e, settle)} {
				if err := e.Refund(t.Context(), a.Receipt); err != nil && !errors.Is(err, limiter.ErrNoReceipt) {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			for _, d := range both {
				if got := usedBy(t, e, d); got != 5 {
					t.Errorf("%s: used %d, want 5", d.Policy, got)
				}
			}
		})
	}
}
