package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// brokenOff is a store that fails, once it is to, from the first write that is no claim on. A write that fails is stored
// or not.
type brokenOff struct {
	*fakeStore
	fails, failed, stores atomic.Bool
}

func newBrokenOff() *brokenOff {
	b := &brokenOff{fakeStore: newFakeStore()}
	b.onWrite = func(w *store.Write) error {
		isClaim := w.Cell != nil && len(w.Cell.Value) == 1
		if !b.fails.Load() || isClaim {
			return nil
		}
		if b.stores.Load() {
			_ = b.Store.Write(context.Background(), w)
		}
		b.failed.Store(true)
		return errLost
	}
	b.afterRead = func(*store.State) error {
		if b.failed.Load() && b.fails.Load() {
			return errLost
		}
		return nil
	}
	return b
}

// confirmable returns policies in which a unit of two that is confirmed counts no more.
func confirmable() []policy.Policy {
	conversion := policyOf("conversion", 2, time.Hour)
	conversion.Limits[0].MinConversion = 50
	log := policyOf("sliding-log", 2, time.Hour)
	log.Limits[0].Until = policy.UntilConfirmed
	return []policy.Policy{conversion, log}
}

// TestRepetitionFinishesWhatTheFirstBegan has the store fail once a receipt is claimed: by a repetition at another
// instance its unit counts no more, and by others no unit more.
func TestRepetitionFinishesWhatTheFirstBegan(t *testing.T) {
	for _, p := range confirmable() {
		for _, stored := range []bool{false, true} {
			for _, refund := range []bool{false, true} {
				name := fmt.Sprintf("%s, stored %t, refund %t", p.Limits[0].Algorithm, stored, refund)
				bubble(t, name, func(t *testing.T) { finishes(t, p, stored, refund) })
			}
		}
	}
}

func finishes(t *testing.T, p policy.Policy, stored, refund bool) {
	broken := newBrokenOff()
	e, other := instance(t, broken, newFakeFeed(), p), instance(t, broken, newFakeFeed(), p)
	bring := func(e *limiter.Engine, receipt string) (again bool, err error) {
		if !refund {
			done, err := e.Confirm(t.Context(), receipt)
			return done.Replayed, err
		}
		err = e.Refund(t.Context(), receipt)
		if errors.Is(err, limiter.ErrNoReceipt) {
			return true, nil
		}
		return false, err
	}
	receipt := mustTakeReceipt(t, e)
	mustTakeReceipt(t, e)
	time.Sleep(3 * timeout)
	broken.stores.Store(stored)
	broken.fails.Store(true)
	var failed *count.StoreError
	if _, err := bring(e, receipt); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown || !broken.failed.Load() {
		t.Fatalf("while the store fails: %v", err)
	}
	broken.fails.Store(false)
	for range 3 {
		if again, err := bring(other, receipt); err != nil || !again {
			t.Errorf("repeated: %t, %v", again, err)
		}
		d, err := other.Check(t.Context(), somebody)
		if err != nil || d.Used != 1 || !d.Allowed {
			t.Errorf("%d used of two, one of which came back: %v", d.Used, err)
		}
	}
}

// mustTakeReceipt takes a unit by e, and returns its receipt.
func mustTakeReceipt(t *testing.T, e *limiter.Engine) string {
	t.Helper()
	a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
	if !a.Allowed || a.Receipt == "" {
		t.Fatalf("%+v", a)
	}
	return a.Receipt
}

// TestLateRepetitionDoesNothingTwice repeats confirmations, the first of which a cell does not tell of any more.
func TestLateRepetitionDoesNothingTwice(t *testing.T) {
	for name, open := range map[string]func() store.Store{
		"held":             func() store.Store { return embedded.New(nil) },
		"compared and set": func() store.Store { return newFakeStore() },
	} {
		bubble(t, name, func(t *testing.T) {
			p := policyOf("conversion", 1, time.Hour)
			p.Limits[0].MinConversion = 100
			e := instance(t, open(), newFakeFeed(), p)
			var receipts []string
			for range store.MaxApplied + 20 {
				receipts = append(receipts, mustTakeReceipt(t, e))
				time.Sleep(2 * time.Millisecond)
				if got, err := e.Confirm(t.Context(), receipts[len(receipts)-1]); err != nil || got.Replayed {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			mustTakeReceipt(t, e)
			for _, receipt := range receipts {
				if got, err := e.Confirm(t.Context(), receipt); err != nil || !got.Replayed {
					t.Fatalf("again: %+v, %v", got, err)
				}
			}
			if d, err := e.Check(t.Context(), somebody); err != nil || d.Allowed || d.Used != 1 {
				t.Errorf("one is not confirmed, of which each has to be: %+v, %v", d.Verdict, err)
			}
		})
	}
}
