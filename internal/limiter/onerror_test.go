package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestStoreThatDoesNotAnswer tells what each policy says to each operation, and
// what it says of the units, by where the store failed.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	down := errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored)
	writeLost := func(s *fakeStore) { s.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable } }
	writeRefused := func(s *fakeStore) { s.onWrite = func(*limiter.Write) error { return down } }
	readLost := func(s *fakeStore) { s.afterRead = func(*limiter.State) error { return limiter.ErrUnavailable } }
	for _, c := range []struct {
		name     string
		fail     func(*fakeStore)
		op       limiter.Op
		recorded limiter.Recorded
	}{
		{"take, write lost", writeLost, limiter.OpTake, limiter.RecordedUnknown},
		{"take, write refused", writeRefused, limiter.OpTake, limiter.RecordedNo},
		{"take, read lost", readLost, limiter.OpTake, limiter.RecordedUnknown},
		{"record, write lost", writeLost, limiter.OpRecord, limiter.RecordedUnknown},
		{"record, write refused", writeRefused, limiter.OpRecord, limiter.RecordedNo},
		{"record, read lost", readLost, limiter.OpRecord, limiter.RecordedUnknown},
		{"check, read lost", readLost, limiter.OpCheck, limiter.RecordedNo},
	} {
		for _, on := range []limiter.OnStoreError{limiter.OnStoreErrorDeny, limiter.OnStoreErrorAllow, limiter.OnStoreErrorLocal} {
			bubble(t, c.name+", "+string(on), func(t *testing.T) {
				store := newFakeStore()
				c.fail(store)
				policy := policyOf("sliding-log", 3, time.Hour)
				policy.OnStoreError = on
				d, err := operation(newEngine(t, store, 0, policy), c.op)(t.Context(), somebody)
				if on != limiter.OnStoreErrorDeny {
					if err != nil || !d.Allowed || !d.Degraded || d.Recorded != c.recorded {
						t.Errorf("allowed %v, degraded %v, recorded %q, %v, want recorded %q", d.Allowed, d.Degraded, d.Recorded, err, c.recorded)
					}
					return
				}
				var failed *limiter.StoreError
				if !errors.As(err, &failed) || failed.Recorded != c.recorded || !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%v, want an error with recorded %q", err, c.recorded)
				}
			})
		}
	}
}

func operation(e *limiter.Engine, op limiter.Op) func(context.Context, limiter.Demand) (limiter.Decision, error) {
	switch op {
	case limiter.OpCheck:
		return e.Check
	case limiter.OpRecord:
		return e.Record
	}
	return e.Take
}

func TestOwnCountsDecideWhileTheStoreDoesNot(t *testing.T) {
	bubble(t, "local", func(t *testing.T) {
		store := newFakeStore()
		policy := policyOf("sliding-log", 3, time.Hour)
		policy.OnStoreError = limiter.OnStoreErrorLocal
		e := newEngine(t, store, 0, policy)
		mustTake(t, e) // while the store answers
		store.set(func() { store.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable } })
		for i, want := range []bool{true, true, false, false} {
			d := mustTake(t, e)
			if d.Allowed != want || !d.Degraded {
				t.Errorf("take %d without the store: allowed %v, degraded %v, want %v", i+1, d.Allowed, d.Degraded, want)
			}
		}
		store.set(func() { store.onWrite = nil })
		if d := mustTake(t, e); d.Degraded {
			t.Error("degraded though the store answers again")
		}
	})
}

func TestShadowAllowsWhateverFails(t *testing.T) {
	bubble(t, "shadow", func(t *testing.T) {
		store := newFakeStore()
		store.set(func() { store.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable } })
		policy := policyOf("sliding-log", 3, time.Hour)
		policy.Mode = limiter.ModeShadow
		if d := mustTake(t, newEngine(t, store, 0, policy)); !d.Allowed || !d.Degraded {
			t.Errorf("allowed %v, degraded %v", d.Allowed, d.Degraded)
		}
	})
}

func TestTakeThatFailedIsTakenBackOnceTheStoreIsBack(t *testing.T) {
	bubble(t, "sliding-log", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("sliding-log", 3, time.Hour))
		running(t, e)
		store.set(func() { store.afterRead = func(*limiter.State) error { return limiter.ErrUnavailable } })
		if _, err := e.Take(t.Context(), somebody); err == nil {
			t.Fatal("no error")
		}
		store.set(func() { store.afterRead = nil })
		time.Sleep(3 * timeout)
		if d := mustTake(t, e); d.Used != 1 {
			t.Errorf("used %d: a take that was answered by an error is still counted", d.Used)
		}
	})
}

func TestClockBeyondTheTolerance(t *testing.T) {
	skewed := true
	e := limiter.New(newFakeStore(), &limiter.Options{Skewed: func() bool { return skewed }})
	if err := e.SetPolicies([]limiter.Policy{policyOf("sliding-log", 3, time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(t.Context(), somebody); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("with a clock that is off: %v", err)
	}
	skewed = false
	mustTake(t, e)
}
