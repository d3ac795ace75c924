package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// testByIdentifier gives one identifier three units where all others have one, under every kind of policy and for every
// operation.
func testByIdentifier(t *testing.T, s store.Store) {
	of := kinds(1)
	for _, p := range each(1) {
		if p.Name, p.Guarantee = p.Name+"-local", policy.GuaranteeLocal; len(p.Problems()) == 0 {
			of = append(of, p)
		}
	}
	for _, p := range of {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			p.Limits = slices.Clone(p.Limits) // the kinds share one slice
			for i := range p.Limits {
				p.Limits[i].By = map[string]int64{"many": 3, "none": 0}
			}
			e := NewEngine(t, s, limiter.Options{}, p)
			by := byIdentifier{e, p.Name}
			by.wantTaken(t, "some", 1)
			by.wantTaken(t, "many", 3)
			by.wantTaken(t, "none", 0)
			by.wantRecords(t)
			by.wantHeld(t)
			by.wantRepeated(t)
			by.wantOverridden(t)
		})
	}
}

type byIdentifier struct {
	Engine
	policy string
}

func (b byIdentifier) demands(id string, cost int64) []limiter.Demand {
	return []limiter.Demand{{Policy: b.policy, Identifier: keys.Identifier(id), Cost: cost}}
}

func (b byIdentifier) reset(t *testing.T, id string) {
	t.Helper()
	*b.Now = b.Now.Add(3 * storeTimeout)
	if err := b.Reset(t.Context(), b.policy, keys.Identifier(id)); err != nil {
		t.Fatal(err)
	}
	*b.Now = b.Now.Add(time.Second)
}

// wantTaken takes until id is denied, which must be after its number of units. Every answer has that number as the
// limit.
func (b byIdentifier) wantTaken(t *testing.T, id string, units int64) {
	t.Helper()
	for n := range units + 1 {
		checked := b.call(t, limiter.Call{Op: count.OpCheck, Demands: b.demands(id, 1)})
		got := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands(id, 1)})
		if got.Allowed != (n < units) || checked.Allowed != got.Allowed {
			t.Fatalf("%s, take %d of %d: allowed %v, but the check allowed %v", id, n, units, got.Allowed, checked.Allowed)
		}
		for _, l := range got.Limits() {
			if l.Limit.Limit != units {
				t.Errorf("%s has a limit of %d, want %d", id, l.Limit.Limit, units)
			}
		}
		*b.Now = b.Now.Add(time.Second)
	}
	x, err := b.Explain(t.Context(), b.demands(id, 1)[0])
	if err != nil || x.Answer.Allowed || x.InForce.Limits[0].Limit != units || x.Counted.Limits()[0].Limit.Limit != units {
		t.Errorf("%s is explained by %+v, %v", id, x, err)
	}
}

// wantRecords records more than the identifier's number, and refunds.
func (b byIdentifier) wantRecords(t *testing.T) {
	t.Helper()
	b.reset(t, "many")
	recorded := b.call(t, limiter.Call{Op: count.OpRecord, Demands: b.demands("many", 2)})
	*b.Now = b.Now.Add(time.Second)
	if last := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 1)}); !last.Allowed {
		t.Errorf("the third unit is denied after a record of two")
	}
	*b.Now = b.Now.Add(3 * storeTimeout)
	if err := b.Refund(t.Context(), recorded.Receipt); err != nil {
		t.Fatal(err)
	}
	if after := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 2)}); !after.Allowed {
		t.Errorf("two units are denied after a refund of two")
	}
}

// wantHeld reserves units for which only the identifier's own number has room, and settles them.
func (b byIdentifier) wantHeld(t *testing.T) {
	t.Helper()
	b.reset(t, "many")
	held := b.call(t, limiter.Call{Op: count.OpCheck, Demands: b.demands("many", 3), Reserve: time.Second * 30})
	if !held.Allowed || held.Reservation == "" {
		t.Fatalf("three units are not held: %+v", held)
	}
	if beside := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 1)}); beside.Allowed {
		t.Error("a fourth unit is allowed while three are held")
	}
	*b.Now = b.Now.Add(time.Second)
	if settled := b.call(t, limiter.Call{Op: count.OpRecord, Reservation: held.Reservation}); settled.Limits()[0].Limit.Limit != 3 {
		t.Errorf("the reservation was settled under a limit of %d", settled.Limits()[0].Limit.Limit)
	}
	if after := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 1)}); after.Allowed {
		t.Error("a fourth unit is allowed after three were settled")
	}
}

// wantRepeated repeats a call, which counts once and has the same limit in each answer.
func (b byIdentifier) wantRepeated(t *testing.T) {
	t.Helper()
	b.reset(t, "many")
	call := limiter.Call{Op: count.OpTake, Demands: b.demands("many", 3), IdempotencyKey: b.policy}
	for n := range 2 {
		got := b.call(t, call)
		if l := got.Limits()[0]; !got.Allowed || got.Replayed != (n > 0) || l.Limit.Limit != 3 || l.Limit.By != nil {
			t.Errorf("take %d: allowed %v, replayed %v, %+v", n, got.Allowed, got.Replayed, l.Limit)
		}
		*b.Now = b.Now.Add(time.Second)
	}
	if after := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 1)}); after.Allowed {
		t.Error("a fourth unit is allowed")
	}
}

// wantOverridden sets an override, which takes precedence over the identifier's own number.
func (b byIdentifier) wantOverridden(t *testing.T) {
	t.Helper()
	b.reset(t, "many")
	other := demand.Override{Kind: policy.OverrideLimits, Until: store.InstantOf(b.Now.Add(time.Hour))}
	p, _ := b.Policy(b.policy)
	for _, l := range p.Limits {
		other.Limits = append(other.Limits, demand.LimitOverride{Name: l.Name, Limit: 4})
	}
	if _, err := b.Overrides.Set(t.Context(), b.policy, "many", other); err != nil {
		t.Fatal(err)
	}
	got := b.call(t, limiter.Call{Op: count.OpTake, Demands: b.demands("many", 4)})
	x, err := b.Explain(t.Context(), b.demands("many", 1)[0])
	if !got.Allowed || got.Override != policy.OverrideLimits || err != nil || x.InForce.Limits[0].Limit != 3 {
		t.Errorf("allowed %v by %q; in force is %+v (error %v)", got.Allowed, got.Override, x.InForce, err)
	}
}
