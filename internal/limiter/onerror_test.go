package limiter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestStoreThatDoesNotAnswer tells what each policy says to each operation, and
// what it says of the units, by where the store failed.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	down := errors.Join(store.ErrUnavailable, store.ErrNotStored)
	writeLost := func(s *fakeStore) { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } }
	writeRefused := func(s *fakeStore) { s.onWrite = func(*store.Write) error { return down } }
	readLost := func(s *fakeStore) { s.afterRead = func(*store.State) error { return store.ErrUnavailable } }
	for _, c := range []struct {
		name     string
		fail     func(*fakeStore)
		op       count.Op
		recorded count.Recorded
	}{
		{"take, write lost", writeLost, count.OpTake, count.RecordedUnknown},
		{"take, write refused", writeRefused, count.OpTake, count.RecordedNo},
		{"take, read lost", readLost, count.OpTake, count.RecordedUnknown},
		{"record, write lost", writeLost, count.OpRecord, count.RecordedUnknown},
		{"record, write refused", writeRefused, count.OpRecord, count.RecordedNo},
		{"record, read lost", readLost, count.OpRecord, count.RecordedUnknown},
		{"check, read lost", readLost, count.OpCheck, count.RecordedNo},
	} {
		for _, on := range []policy.OnStoreError{policy.OnStoreErrorDeny, policy.OnStoreErrorAllow, policy.OnStoreErrorLocal} {
			bubble(t, c.name+", "+string(on), func(t *testing.T) {
				s := newFakeStore()
				c.fail(s)
				p := policyOf("sliding-log", 3, time.Hour)
				p.OnStoreError = on
				d, err := operation(newEngine(t, s, 0, p), c.op)(t.Context(), somebody)
				if on != policy.OnStoreErrorDeny {
					if err != nil || !d.Allowed || !d.Degraded || d.Recorded != c.recorded {
						t.Errorf("allowed %v, degraded %v, recorded %q, %v, want recorded %q", d.Allowed, d.Degraded, d.Recorded, err, c.recorded)
					}
					return
				}
				var failed *count.StoreError
				if !errors.As(err, &failed) || failed.Recorded != c.recorded || !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%v, want an error with recorded %q", err, c.recorded)
				}
			})
		}
	}
}

func operation(e *limiter.Engine, op count.Op) func(context.Context, limiter.Demand) (count.Decision, error) {
	switch op {
	case count.OpCheck:
		return e.Check
	case count.OpRecord:
		return e.Record
	}
	return e.Take
}

func TestOwnCountsDecideWhileTheStoreDoesNot(t *testing.T) {
	bubble(t, "local", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("sliding-log", 3, time.Hour)
		p.OnStoreError = policy.OnStoreErrorLocal
		e := newEngine(t, s, 0, p)
		mustTake(t, e) // while the store answers
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		for i, want := range []bool{true, true, false, false} {
			d := mustTake(t, e)
			if d.Allowed != want || !d.Degraded {
				t.Errorf("take %d without the store: allowed %v, degraded %v, want %v", i+1, d.Allowed, d.Degraded, want)
			}
		}
		s.set(func() { s.onWrite = nil })
		if d := mustTake(t, e); d.Degraded {
			t.Error("degraded though the store answers again")
		}
	})
}

func TestShadowAllowsWhateverFails(t *testing.T) {
	bubble(t, "shadow", func(t *testing.T) {
		s := newFakeStore()
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		p := policyOf("sliding-log", 3, time.Hour)
		p.Mode = policy.ModeShadow
		if d := mustTake(t, newEngine(t, s, 0, p)); !d.Allowed || !d.Degraded {
			t.Errorf("allowed %v, degraded %v", d.Allowed, d.Degraded)
		}
	})
}

func TestTakeThatFailedIsTakenBackOnceTheStoreIsBack(t *testing.T) {
	bubble(t, "sliding-log", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("sliding-log", 3, time.Hour))
		running(t, e)
		s.set(func() { s.afterRead = func(*store.State) error { return store.ErrUnavailable } })
		if _, err := e.Take(t.Context(), somebody); err == nil {
			t.Fatal("no error")
		}
		s.set(func() { s.afterRead = nil })
		time.Sleep(3 * timeout)
		if d := mustTake(t, e); d.Used != 1 {
			t.Errorf("used %d: a take that was answered by an error is still counted", d.Used)
		}
	})
}

func TestClockBeyondTheTolerance(t *testing.T) {
	skewed := true
	e := limiter.New(newFakeStore(), &limiter.Options{Skewed: func() bool { return skewed }})
	if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 3, time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(t.Context(), somebody); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with a clock that is off: %v", err)
	}
	skewed = false
	mustTake(t, e)
}

// A clock that is set within a call dates nothing of it: it is set one look at it later in
// each call, until a call is over before.
func TestClockThatIsSetWithinACall(t *testing.T) {
	log, bucket := policyOf("sliding-log", 3, time.Hour), policyOf("token-bucket", 3, time.Hour)
	rows := policyOf("sliding-tail", 3, time.Hour)
	rows.Counting = policy.CountingRows
	blocks := policyOf("sliding-log", 1, time.Hour)
	blocks.BlockFor = time.Minute
	twice := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody, {Policy: somebody.Policy, Identifier: "another"}}}
	once := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "key"}
	one := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}
	for name, test := range map[string]struct {
		policy policy.Policy
		call   limiter.Call
	}{
		"a log":           {log, one},
		"counters":        {policyOf("fixed-window", 3, time.Hour), one},
		"rows":            {rows, one},
		"a bucket":        {bucket, one},
		"two demands":     {log, twice},
		"an idempotent":   {log, once},
		"one that blocks": {blocks, one},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testClockThatIsSet(t, test.policy, &test.call) })
		})
	}
}

func testClockThatIsSet(t *testing.T, p policy.Policy, call *limiter.Call) {
	const by = 48 * time.Hour
	for at := int64(0); ; at++ {
		var looks atomic.Int64
		var right atomic.Bool // it is put back
		isSet := func() bool { return looks.Add(1) > at && !right.Load() }
		s := newFakeStore()
		e := limiter.New(s, &limiter.Options{
			Skewed: isSet,
			Now: func() time.Time {
				if isSet() {
					return time.Now().Add(by)
				}
				return time.Now()
			},
		})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		key, _ := e.KeyOf(somebody.Policy, somebody.Identifier)
		if p.BlockFor > 0 { // the call is denied
			right.Store(true)
			mustTake(t, e)
			right.Store(false)
		}
		looks.Store(0)
		_, err := e.Do(t.Context(), call)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("set at look %d: %v", at, err)
		}
		latest := store.InstantOf(time.Now().Add(by / 2))
		for _, w := range s.writes {
			for _, event := range w.Events {
				if event.At > latest || event.ID.Instant() > latest {
					t.Errorf("set at look %d: an event is dated %v", at, event.At.Time())
				}
			}
			for _, count := range w.Add {
				if count.Start > latest {
					t.Errorf("set at look %d: %d units are counted at %v", at, count.Units, count.Start.Time())
				}
			}
			if w.Cell != nil && w.Key == key && w.Cell.Version.Instant() > latest {
				t.Errorf("set at look %d: a cell is dated %v", at, w.Cell.Version.Instant().Time())
			}
		}
		all := looks.Load()
		right.Store(true)
		if d := mustCheck(t, e); d.Blocked && d.RetryAfter > by/2 {
			t.Errorf("set at look %d: blocked for %v", at, d.RetryAfter)
		}
		if all <= at {
			if err != nil || all < 2 {
				t.Errorf("%v after %d looks", err, all)
			}
			return
		}
	}
}

// A refund by a clock that is beyond the tolerance is refused, and possible once it is right.
func TestRefundByAClockBeyondTheTolerance(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			var skewed atomic.Bool
			policy := policyOf(algorithm, 5, 24*time.Hour)
			e := instanceWith(t, newFakeStore(), &limiter.Options{
				StoreTimeout: timeout, ClockTolerance: tolerance, Skewed: skewed.Load,
			}, policy)
			demands := []limiter.Demand{somebody}
			a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: demands})
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: demands, Reserve: time.Minute})
			skewed.Store(true)
			var failed *count.StoreError
			if err := e.Refund(t.Context(), a.Receipt); !errors.As(err, &failed) || failed.Recorded != count.RecordedYes {
				t.Errorf("refunded: %v", err)
			}
			time.Sleep(2 * time.Minute) // the reservation ends
			skewed.Store(false)
			if err := e.Refund(t.Context(), a.Receipt); err != nil {
				t.Errorf("once it is right: %v", err)
			}
			time.Sleep(time.Hour) // a bucket that drained meanwhile gives back less
			if used := mustCheck(t, e).Used; used != 0 || held.Reservation == "" {
				t.Errorf("%d used", used)
			}
		})
	}
}
