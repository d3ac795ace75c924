package limiter

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Explanation has everything known to this instance that affects the decisions for an identifier under a policy.
type Explanation struct {
	Policy   string
	InForce  *policy.Policy // for this identifier, without an override; not to be changed
	Key      store.Key
	Answer   count.Decision   // the answer to a check now, by an override or a block if there is one
	Counted  count.Decision   // the verdict of the limits alone on the state in the store now
	Override *demand.Override // the override in force; nil: none
	Block    *KeyBlock        // the block that follows a denial; nil: none
	Reset    store.Instant    // the instant up to which a reset has removed units that would still count; 0: no reset has
	Derived  []*Explanation   // of the demands that the policy derives from the identifier in the same call
	Failed   error            // the StoreError because of which Counted and Reset are empty; nil: the store has answered
}

// KeyBlock is a block of a key.
type KeyBlock struct {
	Until   store.Instant
	Strikes int // blocks in a row, this one included
}

// Explain returns the reasons why d is allowed or denied now. It records nothing, and reads the store even if the state is
// in memory. Errors are those of Check, except a count.StoreError, which is in Failed.
func (e *Engine) Explain(ctx context.Context, d Demand) (*Explanation, error) {
	return e.explainer.explain(ctx, &d)
}

// explainer makes explanations.
type explainer struct {
	*basis
	store   store.Store
	charger *charger
	judge   *judge.Judge
}

func (e *explainer) explain(ctx context.Context, d *Demand) (*Explanation, error) {
	var c demand.Charge
	parts, err := e.charger.charge(e.charger.plans.inForce.Load(), &c, count.OpCheck, d)
	if err != nil {
		return nil, err
	}
	more, err := deriveFrom(&c, nil, 0, parts, try{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.settings.StoreTimeout)
	defer cancel()
	_, id, _, err := e.charger.plans.planOf(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	x := e.ofCharge(ctx, &c, id, d.Limit)
	for i := range more {
		e.charger.override(&more[i].Charge, more[i].id)
		x.Derived = append(x.Derived, e.ofCharge(ctx, &more[i].Charge, more[i].id, 0))
	}
	return x, nil
}

// ofCharge explains c. id is the identifier and limit the Limit of its demand.
func (e *explainer) ofCharge(ctx context.Context, c *demand.Charge, id keys.Identifier, limit int64) *Explanation {
	x := &Explanation{Policy: c.Plan.Name, InForce: &c.Plan.Policy, Key: c.Key}
	if p := e.charger.plans.inForce.Load().byName[c.Plan.Name]; p != nil {
		x.InForce = &p.At(c.Key).Asked(limit).Policy
	}
	now := e.now()
	if o := e.charger.overrides.Of(&c.Target, string(id), now); o != nil {
		x.Override = &o.Override
	}
	if b := e.judge.Blocks.Of(c.Key, c.OldKeys, now); c.Plan.Blocks && b.Until > now {
		x.Block = &KeyBlock{Until: b.Until, Strikes: b.Strikes}
	}
	counted := *c
	if e.decider.Decide(ctx, &counted); counted.Err == nil {
		x.Counted = counted.Decision
		x.Reset, counted.Err = e.resetOf(ctx, &c.Target)
	}
	if x.Failed = counted.Err; x.Failed != nil {
		x.Counted = count.Decision{}
		if _, already := errors.AsType[*count.StoreError](x.Failed); !already {
			x.Failed = &count.StoreError{Recorded: count.RecordedNo, Err: x.Failed}
		}
	}
	x.Answer = e.judge.Explain(ctx, c, x.Counted, x.Failed)
	return x
}

// resetOf returns the instant up to which a reset has removed t's counts.
func (e *explainer) resetOf(ctx context.Context, t *demand.Target) (latest store.Instant, err error) {
	q := t.Plan.Query(t.Key, e.now(), 1, nil)
	s, err := e.store.Read(ctx, &q)
	if err == nil && t.Plan.Cell {
		_, err = cas.Open(t.Plan, &s)
	}
	if err != nil {
		return 0, &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	return max(s.Reset, e.decider.LastReset(t.Key)), nil // counters show a reset only once units are counted after it
}
