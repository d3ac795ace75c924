package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const hold = 30 * time.Second

// concurrently returns policies of n units under way at the same time.
func concurrently(n int64) (policies []policy.Policy) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		policies = append(policies, policy.Policy{Name: "slots-" + string(guarantee), Guarantee: guarantee, Limits: []policy.Limit{
			{Algorithm: "concurrent", Limit: n, Window: hold},
		}})
	}
	return policies
}

// testReleaseMakesRoom releases one of two units, early and twice, and another one whose hold has ended.
func testReleaseMakesRoom(t *testing.T, store store.Store) {
	policies := concurrently(2)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		take := limiter.Call{Op: count.OpTake, Demands: on(p.Name)}
		first := e.call(t, take)
		*e.Now = e.Now.Add(time.Second)
		second := e.call(t, take)
		if first.Release == "" || first.Receipt != first.Release {
			t.Fatalf("%s: receipt %q, release %q", p.Name, first.Receipt, first.Release)
		}
		third := e.call(t, take)
		if third.Allowed || third.Release != "" || third.RetryAfter != hold-time.Second {
			t.Errorf("%s: a third take under a limit of 2: %+v", p.Name, third.Verdict)
		}
		if err := e.Refund(t.Context(), first.Release); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, 1, "after a release")
		if err := e.Refund(t.Context(), first.Release); err != nil {
			t.Errorf("%s: released twice: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, 1, "after a second release of the same")
		if again := e.call(t, take); !again.Allowed {
			t.Errorf("%s: with one of two units released: %+v", p.Name, again.Verdict)
		}
		*e.Now = e.Now.Add(hold)
		e.wantUsed(t, p.Name, 0, "when all holds have ended")
		last := e.call(t, take)
		if err := e.Refund(t.Context(), second.Release); err != nil {
			t.Errorf("%s: released after its hold: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, 1, "after a release of what counts no more")
		*e.Now = e.Now.Add(3 * hold)
		if err := e.Refund(t.Context(), last.Release); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("%s: released long after its hold: %v", p.Name, err)
		}
	}
}

// testReleaseBesideOthers releases the concurrent units of a call that also counts elsewhere. The other units stay.
func testReleaseBesideOthers(t *testing.T, store store.Store) {
	for _, p := range concurrently(1) {
		e := NewEngine(t, store, limiter.Options{}, p, gate)
		taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name, "gate")})
		if taken.Release == "" || taken.Receipt == "" || taken.Receipt == taken.Release {
			t.Fatalf("%s: receipt %q, release %q", p.Name, taken.Receipt, taken.Release)
		}
		if err := e.Refund(t.Context(), taken.Release); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, 0, "after a release")
		e.wantUsed(t, "gate", 1, "beside a release")
		*e.Now = e.Now.Add(time.Second)
		if err := e.Refund(t.Context(), taken.Receipt); err != nil {
			t.Errorf("%s: a refund after the release: %v", p.Name, err)
		}
		e.wantUsed(t, "gate", 0, "after a refund")
	}
}
