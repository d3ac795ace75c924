package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// testLimitFromRequest makes calls with limits of their own, which count together, each up to its own limit, under
// every kind of policy that takes one and for every operation.
func testLimitFromRequest(t *testing.T, s store.Store) {
	of := kinds(1)
	for _, p := range each(1) {
		if p.Name, p.Guarantee = p.Name+"-local", policy.GuaranteeLocal; len(p.Problems()) == 0 {
			of = append(of, p)
		}
	}
	for _, p := range of {
		at := slices.IndexFunc(p.Limits, func(l policy.Limit) bool { return !l.InCell() })
		if at < 0 {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			p.Limits = slices.Clone(p.Limits) // the kinds share one slice
			for i := range p.Limits {
				p.Limits[i].Limit = 100
			}
			p.Limits[at].Limit, p.Limits[at].Max = 1, 5
			r := fromRequest{NewEngine(t, s, limiter.Options{}, p, gate), p.Name, at}
			r.wantTogether(t)
			r.wantHeldAndRepeated(t)
			r.wantOverridden(t)
			r.wantRefused(t)
		})
	}
}

type fromRequest struct {
	Engine
	policy string
	at     int // index of the limit that is taken from requests
}

// op does op for Somebody with a limit, 0 for none, a second after the previous operation.
func (r fromRequest) op(t *testing.T, op count.Op, cost, limit int64) limiter.Answer {
	t.Helper()
	*r.Now = r.Now.Add(time.Second)
	a := r.call(t, limiter.Call{Op: op, Demands: r.demands(cost, limit)})
	if l := a.Limits()[r.at].Limit; limit != 0 && (l.Limit != limit || l.Max != 0) || limit == 0 && l.Limit != 1 {
		t.Errorf("%s with limit %d is decided by %+v", op, limit, l)
	}
	return a
}

func (r fromRequest) demands(cost, limit int64) []limiter.Demand {
	return []limiter.Demand{{Policy: r.policy, Identifier: Somebody, Cost: cost, Limit: limit}}
}

func (r fromRequest) reset(t *testing.T) {
	t.Helper()
	*r.Now = r.Now.Add(3 * storeTimeout)
	if err := r.Reset(t.Context(), r.policy, Somebody); err != nil {
		t.Fatal(err)
	}
	*r.Now = r.Now.Add(time.Second)
}

// wantTogether takes up to each of several limits in turn.
func (r fromRequest) wantTogether(t *testing.T) {
	t.Helper()
	for i, step := range []struct {
		limit   int64
		allowed bool
	}{
		{0, true}, {0, false}, {3, true}, {2, false}, {3, true}, {3, false}, {0, false}, {5, true}, {3, false}, {5, true}, {5, false}, {4, false},
	} {
		checked, got := r.op(t, count.OpCheck, 1, step.limit), r.op(t, count.OpTake, 1, step.limit)
		if got.Allowed != step.allowed || checked.Allowed != step.allowed {
			t.Fatalf("step %d, limit %d: allowed %v, but the check allowed %v", i, step.limit, got.Allowed, checked.Allowed)
		}
	}
	if d := r.op(t, count.OpRecord, 1, 2); !d.Allowed || d.Limits()[r.at].Remaining != 0 {
		t.Errorf("a record beyond its limit: %+v", d.Limits()[r.at])
	}
	x, err := r.Explain(t.Context(), r.demands(1, 4)[0])
	if err != nil || x.Answer.Allowed || x.InForce.Limits[r.at].Limit != 4 || x.Counted.Limits()[r.at].Limit.Limit != 4 {
		t.Errorf("explained by %+v, %v", x, err)
	}
	r.reset(t)
}

// wantHeldAndRepeated reserves, and repeats a call, by a limit of its own.
func (r fromRequest) wantHeldAndRepeated(t *testing.T) {
	t.Helper()
	held := r.call(t, limiter.Call{Op: count.OpCheck, Demands: r.demands(3, 3), Reserve: 30 * time.Second})
	if !held.Allowed || held.Reservation == "" {
		t.Fatalf("three units under a limit of 3 are not held: %+v", held)
	}
	if r.op(t, count.OpTake, 1, 3).Allowed || !r.op(t, count.OpTake, 1, 4).Allowed {
		t.Error("a fourth unit is allowed while three are held")
	}
	settle := limiter.Call{Op: count.OpRecord, Reservation: held.Reservation, Demands: r.demands(3, 3)}
	if settled := r.call(t, settle); settled.Limits()[r.at].Limit.Limit != 3 || settled.Recorded != count.RecordedYes {
		t.Errorf("settled by %+v", settled)
	}
	call := limiter.Call{Op: count.OpTake, Demands: r.demands(1, 5), IdempotencyKey: r.policy}
	for n := range 2 {
		if got := r.call(t, call); !got.Allowed || got.Replayed != (n > 0) || got.Limits()[r.at].Limit.Limit != 5 {
			t.Errorf("take %d: %+v", n, got)
		}
	}
	call.Demands = r.demands(1, 4)
	if _, err := r.Engine.Engine.Do(t.Context(), &call); !errors.Is(err, limiter.ErrReused) {
		t.Errorf("the same key with another limit: %v", err)
	}
	r.reset(t)
}

// wantOverridden sets an override, which takes precedence over the limit of a call.
func (r fromRequest) wantOverridden(t *testing.T) {
	t.Helper()
	p, _ := r.Policy(r.policy)
	other := demand.Override{
		Kind: policy.OverrideLimits, Until: store.InstantOf(r.Now.Add(time.Hour)),
		Limits: []demand.LimitOverride{{Name: p.Limits[r.at].Name, Limit: 7}},
	}
	if _, err := r.Overrides.Set(t.Context(), r.policy, Somebody, other); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 2} {
		a := r.call(t, limiter.Call{Op: count.OpCheck, Demands: r.demands(7, limit)})
		if !a.Allowed || a.Override != policy.OverrideLimits || a.Limits()[r.at].Limit.Limit != 7 {
			t.Errorf("with limit %d: %+v", limit, a)
		}
	}
	if err := r.Overrides.End(t.Context(), r.policy, Somebody); err != nil {
		t.Fatal(err)
	}
}

// wantRefused sends limits that are out of range, or to policies that take none.
func (r fromRequest) wantRefused(t *testing.T) {
	t.Helper()
	for _, d := range []limiter.Demand{
		{Policy: r.policy, Identifier: Somebody, Limit: 6},
		{Policy: r.policy, Identifier: Somebody, Limit: -1},
		{Policy: gate.Name, Identifier: Somebody, Limit: 1},
	} {
		var wrong *limiter.FieldError
		if _, err := r.Take(t.Context(), d); !errors.As(err, &wrong) || wrong.Field != "limit" {
			t.Errorf("limit %d under %s: %v", d.Limit, d.Policy, err)
		}
	}
}
