//go:build !race

package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestEmbeddedTakeAllocatesNothing, allowed or denied, but for a log that grows. The race
// detector throws borrowed memory away.
func TestEmbeddedTakeAllocatesNothing(t *testing.T) {
	for _, name := range policy.Algorithms() {
		for _, limit := range []int64{0, 10, 10_000} {
			e := limiter.New(embedded.New(nil), nil)
			if err := e.SetPolicies([]policy.Policy{policyOf(name, limit, time.Hour)}); err != nil {
				t.Fatal(err)
			}
			got := testing.AllocsPerRun(100, func() {
				for range 20 {
					mustTake(t, e)
				}
			})
			if got > 0 {
				t.Errorf("%s of %d: %v allocations of 20 takes", name, limit, got)
			}
		}
	}
}

// TestLimitFromRequestAllocatesNothing holds that a take which brings its limit allocates nothing, once calls have had it.
func TestLimitFromRequestAllocatesNothing(t *testing.T) {
	for _, name := range writtenFirst() {
		e := limiter.New(embedded.New(nil), nil)
		if err := e.SetPolicies([]policy.Policy{askedOf(name)}); err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(100, func() {
			for limit := range int64(10) {
				takeOf(t, e, limit)
			}
		})
		if got > 0 {
			t.Errorf("%s: %v allocations of 10 takes", name, got)
		}
	}
}

// TestFullLogAllocatesNothing, whose oldest event goes as each new one comes: it has room
// for the one that is judged before it is stored.
func TestFullLogAllocatesNothing(t *testing.T) {
	at := time.Now()
	now := func() time.Time { return at }
	e := limiter.New(embedded.New(&embedded.Options{Now: now}), &limiter.Options{Now: now})
	if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 10, time.Hour)}); err != nil {
		t.Fatal(err)
	}
	take := func() {
		for range 20 {
			at = at.Add(time.Hour / 9)
			if d := mustTake(t, e); !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
	}
	take()
	if got := testing.AllocsPerRun(100, take); got > 0 {
		t.Errorf("%v allocations of 20 takes", got)
	}
}
