package limiter

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Demand is a caller's demand: units under a policy for an identifier.
type Demand struct {
	Policy     string
	Identifier keys.Identifier // 1 to MaxIdentifierLen bytes
	Cost       int64           // units, 1 to MaxCost; 0 means 1; see CostNothing
	Limit      int64           // the number of the policy's limit that comes with demands, 1 to its Max; 0: its default
}

// CostNothing is the cost of a demand or a Call that settles a reservation at no cost: all held units are given back.
const CostNothing int64 = -1

// Take counts d in one step if every limit of its policy, and of the policies that it derives, has room for it. The
// decision is that of the tightest limit.
//
// Errors wrap ErrInvalid, ErrUnknownPolicy, ErrCostTooLarge or, as a StoreError, ErrUnavailable and ErrOverloaded; the
// decision then has no meaning.
func (e *Engine) Take(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpTake, d)
}

// Check returns the answer that Take would give now. It records nothing.
func (e *Engine) Check(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpCheck, d)
}

// Record counts d whatever the limit. The decision is always allowed.
func (e *Engine) Record(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpRecord, d)
}

// single is memory for a call of one charge, as most calls are. No code keeps it after the call. It is not cleared in the
// pool, so that the next call can use its Memory.
type single [1]demand.Charge

// do decides d as op.
func (e *Engine) do(ctx context.Context, op count.Op, d Demand) (decision count.Decision, err error) {
	one, _ := e.borrowed.Get().(*single)
	c := &one[0]
	parts, err := e.charger.charge(e.plans.inForce.Load(), c, op, &d)
	switch {
	case err != nil:
	case parts != nil:
		var answer Answer
		answer, err = e.Do(ctx, &Call{Op: op, Demands: []Demand{d}})
		decision = answer.Decision
	default:
		e.judge.Decide(ctx, c)
		e.judge.Tell(one[:])
		decision, err = c.Decision, c.Err
	}
	e.borrowed.Put(one)
	return decision, err
}

// charger makes charges from callers' demands.
type charger struct {
	plans     *plans
	overrides *overrides.Set
}

// charge sets c to the charge of d under set, ready to decide, and returns the parts of the identifier for which the policy
// derives demands. It keeps c's Memory.
func (m *charger) charge(set *planSet, c *demand.Charge, op count.Op, d *Demand) ([]string, error) {
	p, id, found, err := set.find(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	*c = demand.Charge{Op: op, Cost: cmp.Or(d.Cost, 1), Refused: found.Refused, Memory: c.Memory}
	p.Locate(&c.Target, id)
	if m.overrides.Live.Load() > 0 {
		m.override(c, id)
	}
	if d.Limit != 0 {
		if err := checkLimit(p, d.Limit); err != nil {
			return nil, err
		}
		c.Plan = c.Plan.Asked(d.Limit)
	}
	if c.Cost < 1 || c.Cost > c.Plan.Fitting {
		if err := checkCharge(c); err != nil {
			return nil, err
		}
	}
	if p.Mode == policy.ModeOff || p.Mode == policy.ModeEnforce && c.Refused != "" && judge.IsRefused(c) { // nothing is counted
		return nil, nil
	}
	return found.Parts, nil
}

// find returns the plan of a policy, the canonical form of id under it, and the parts and properties that the policy finds
// in id. It returns an error for an invalid identifier.
func (p *planSet) find(name string, id keys.Identifier) (made *demand.Plan, canonical keys.Identifier, found policy.Found, err error) {
	if made = p.byName[name]; made == nil {
		return nil, "", found, p.unknown()
	}
	if len(id) == 0 || len(id) > keys.MaxIdentifierLen {
		return nil, "", found, &FieldError{Field: "identifier", Detail: fmt.Sprintf("%d bytes long: use 1 to %d", len(id), keys.MaxIdentifierLen)}
	}
	if made.Read == nil { // id is used as it is
		return made, id, found, nil
	}
	canonical, found, err = readIdentifier(made, id)
	return made, canonical, found, err
}

// readIdentifier returns the canonical form of id under p, which has a reader, the parts for which p derives demands, and
// the reason for which p refuses id, if any.
func readIdentifier(p *demand.Plan, id keys.Identifier) (keys.Identifier, policy.Found, error) {
	canonical, found, err := p.Read(string(id))
	if err != nil {
		return "", policy.Found{}, &FieldError{Field: "identifier", Detail: err.Error()}
	}
	if len(canonical) > keys.MaxIdentifierLen {
		return "", policy.Found{}, &FieldError{
			Field:  "identifier",
			Detail: fmt.Sprintf("%d bytes long in its canonical form: use 1 to %d", len(canonical), keys.MaxIdentifierLen),
		}
	}
	return keys.Identifier(canonical), found, nil
}

// checkLimit returns an error if a demand can't bring this limit under p.
func checkLimit(p *demand.Plan, units int64) error {
	i := p.FromRequest()
	switch {
	case i < 0:
		return &FieldError{Field: "limit", Detail: "the policy takes none from a request: remove it, " +
			"or write limit: {from: request, max: 1000, default: 100} or the like in the policy"}
	case !p.TakesLimit(units):
		return &FieldError{Field: "limit", Detail: fmt.Sprintf("%d is out of range: use 1 to %d, the policy's max", units, p.Limits[i].Max)}
	}
	return nil
}

// checkCharge returns an error if c can't have its cost. Under an override to allow or to block, the cost may exceed what
// the limits ever have room for.
func checkCharge(c *demand.Charge) error {
	op := c.Op
	if c.Override != nil && c.Override.Kind != policy.OverrideLimits {
		op = count.OpRecord
	}
	return checkCost(c.Plan, op, c.Cost)
}

// checkCost returns an error if cost is out of range or, unless op is a record, could never pass.
func checkCost(p *demand.Plan, op count.Op, cost int64) error {
	if cost < 1 || cost > policy.MaxCost {
		return &FieldError{Field: "cost", Detail: fmt.Sprintf("%d is out of range: use 1 to %d", cost, int64(policy.MaxCost))}
	}
	if op == count.OpRecord || p.Mode != policy.ModeEnforce {
		return nil
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; cost > r.Capacity && r.Limit.Limit > 0 && !r.Shadow {
			return fmt.Errorf("%w: cost %d under limit %q of %d units", ErrCostTooLarge, cost, r.Name, r.Capacity)
		}
	}
	return nil
}
