package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// lostClaim is a store that loses the answer to one claim, fails the reads that look into
// it, and may refuse the next attempt.
type lostClaim struct {
	serialStore
	of      string // the claim's value; "{" of one that begins so
	skip    int    // so many such claims come before it
	stored  bool   // whether what was lost is stored
	then    error  // the answer to the next attempt; nil: what the store says
	between func() // before the next attempt; may be nil

	mu       sync.Mutex
	attempts int
	unread   int
}

func newLostClaim(of string) *lostClaim {
	l := &lostClaim{serialStore: serialStore{fakeStore: newFakeStore()}, of: of}
	l.afterRead = func(*store.State) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unread > 0 {
			l.unread--
			return errLost
		}
		return nil
	}
	return l
}

// Write stores, unless it is an attempt at the claim that is to be lost or refused.
func (l *lostClaim) Write(ctx context.Context, w *store.Write) error {
	if w.Cell == nil || !bytes.Equal(w.Cell.Value, []byte(l.of)) && (l.of != "{" || !bytes.HasPrefix(w.Cell.Value, []byte(l.of))) {
		return l.fakeStore.Write(ctx, w)
	}
	l.mu.Lock()
	l.attempts++
	attempt := l.attempts - l.skip
	l.mu.Unlock()
	switch {
	case attempt == 1 && l.stored:
		_ = l.fakeStore.Write(ctx, w)
		fallthrough
	case attempt == 1:
		l.mu.Lock()
		l.unread = 5 // a serial read is tried as often
		l.mu.Unlock()
		return errLost
	case attempt == 2 && l.between != nil:
		l.between()
	}
	if attempt == 2 && l.then != nil {
		return l.then
	}
	return l.fakeStore.Write(ctx, w)
}

func (l *lostClaim) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, l, w, wrote)
}

func (l *lostClaim) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, l, w, q)
}

// tried returns how many attempts at the claim were made.
func (l *lostClaim) tried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts
}

// A claim whose first attempt was lost is repeated. The next attempt tells apart what it meets:
// an own attempt that was stored is no conflict, and nothing is over because one attempt was
// not stored. The call of the claim happens, once.
func TestClaimThatIsRepeated(t *testing.T) {
	one := []limiter.Demand{somebody}
	reserve := limiter.Call{Op: count.OpCheck, Demands: one, Reserve: time.Minute}
	keyed := limiter.Call{Op: count.OpTake, Demands: one, IdempotencyKey: "k"}
	settle := func(t *testing.T, e *limiter.Engine, a limiter.Answer) error {
		_, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: one, Reservation: a.Reservation})
		return err
	}
	take := func(t *testing.T, e *limiter.Engine, _ limiter.Answer) error {
		a, err := e.Do(t.Context(), &keyed)
		if err == nil && !a.Allowed {
			t.Errorf("denied: %+v", a.Decision)
		}
		return err
	}
	for _, of := range []struct {
		name, value string
		skip        int
		before      limiter.Call
		waits       time.Duration // before act
		act         func(t *testing.T, e *limiter.Engine, a limiter.Answer) error
		used        int64 // by it
	}{
		{name: "a refund", value: "\x01", before: limiter.Call{Op: count.OpTake, Demands: one},
			act: func(t *testing.T, e *limiter.Engine, a limiter.Answer) error { return e.Refund(t.Context(), a.Receipt) }},
		{name: "a settled reservation", value: "s", before: reserve, act: settle, used: 1},
		{name: "the end of a reservation", value: "o", before: reserve, act: func(*testing.T, *limiter.Engine, limiter.Answer) error {
			time.Sleep(2 * time.Minute)
			return nil
		}},
		{name: "a late record", value: "b", before: reserve, waits: 2 * time.Minute, act: settle, used: 1},
		{name: "a call", value: "{", before: limiter.Call{Op: count.OpCheck, Demands: one}, act: take, used: 1},
		{name: "an answer", value: "{", skip: 1, before: limiter.Call{Op: count.OpCheck, Demands: one}, act: take, used: 1},
	} {
		for _, fails := range []struct {
			name   string
			stored bool
			then   error
		}{
			{"meets its own attempt", true, nil},
			{"meets a conflict with its own attempt", true, store.ErrConflict},
			{"is not stored, and an attempt before it was", true, errors.Join(store.ErrUnavailable, store.ErrNotStored)},
			{"is not stored either", false, errors.Join(store.ErrUnavailable, store.ErrNotStored)},
			{"is lost as well", false, errLost},
		} {
			for _, algorithm := range policy.Algorithms() {
				bubble(t, fmt.Sprintf("%s of a %s, which %s", of.name, algorithm, fails.name), func(t *testing.T) {
					store := newLostClaim(of.value)
					store.skip, store.stored, store.then = of.skip, fails.stored, fails.then
					e := newEngine(t, store, 0, policyOf(algorithm, 10, 31*24*time.Hour))
					running(t, e)
					mustTake(t, e) // which nothing of this may give back
					a := mustDo(t, e, of.before)
					time.Sleep(of.waits)
					if err := of.act(t, e, a); err != nil {
						t.Error(err)
					}
					if n := store.tried(); n < 2 && !inLog(algorithm) { // holds of logs end without a claim
						t.Errorf("%d attempts were made, want another one", n)
					}
					time.Sleep(5 * time.Second)
					if got := usedBy(t, e, somebody); got != 1+of.used {
						t.Errorf("used %d, want %d", got, 1+of.used)
					}
					err := of.act(t, e, a)                                            // again
					once := of.value == "\x01" && algorithm != policy.Concurrent.Name // of which a release may be repeated
					if once && !errors.Is(err, limiter.ErrNoReceipt) || !once && err != nil {
						t.Errorf("again: %v", err)
					}
					time.Sleep(5 * time.Second)
					if got := usedBy(t, e, somebody); got != 1+of.used {
						t.Errorf("used %d when it was done again, want %d", got, 1+of.used)
					}
				})
			}
		}
	}
}

// A refund whose first attempt to claim was lost finds that another instance came first,
// and gives nothing back.
func TestRefundThatComesSecond(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newLostClaim("\x01")
			policy := policyOf(algorithm, 10, 31*24*time.Hour)
			e, other := newEngine(t, store, 0, policy), newEngine(t, store.fakeStore, 0, policy)
			running(t, e)
			running(t, other)
			mustTake(t, e)
			receipt := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}).Receipt
			time.Sleep(10 * time.Second)
			store.between = func() {
				if err := other.Refund(context.Background(), receipt); err != nil {
					t.Error(err)
				}
			}
			if err := e.Refund(t.Context(), receipt); !errors.Is(err, limiter.ErrNoReceipt) && algorithm != "concurrent" {
				t.Errorf("refunded twice: %v", err)
			}
			time.Sleep(5 * time.Second)
			if got := usedBy(t, e, somebody); got != 1 {
				t.Errorf("used %d, want 1", got)
			}
		})
	}
}

// A refund that can't find out whether its claim was stored says so: not that the receipt was used.
func TestRefundInDoubt(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newLostClaim("\x01")
		store.stored = true
		e := newEngine(t, store, 0, policyOf("fixed-window", 10, 31*24*time.Hour))
		running(t, e)
		receipt := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}).Receipt
		store.between = func() { store.unread = 1 << 20 } // and the attempt meets the one before it
		err := e.Refund(t.Context(), receipt)
		store.unread = 0
		wantRecorded(t, err, count.RecordedUnknown)
		if errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("said to be refunded: %v", err)
		}
	})
}
