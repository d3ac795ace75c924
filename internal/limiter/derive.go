package limiter

import (
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// derived is a demand on another policy that a demand's policy derives.
type derived struct {
	demand.Charge
	id keys.Identifier // in its canonical form
	by int             // index of the demand whose policy derives it
}

// readIdentifiers sets Read, the reader of identifiers, of each of plans, and the plans that it derives.
func (ps *plans) readIdentifiers(policies []policy.Policy, plans map[string]*demand.Plan) error {
	for i, found := range policy.DeriveProblems(policies) {
		return fmt.Errorf("policy %q: %w", policies[i].Name, found[0])
	}
	for _, p := range plans {
		if p.Normalize.Form == "" && len(p.Derive) == 0 {
			continue
		}
		if ps.identifiers == nil {
			return fmt.Errorf("policy %q: the engine has no reader for identifiers of the form %s", p.Name, p.Normalize.Form)
		}
		read, err := ps.identifiers(&p.Policy)
		if err != nil {
			return fmt.Errorf("policy %q: normalize: %w", p.Name, err)
		}
		p.Read = read
		for _, d := range p.Derive {
			p.Derives = append(p.Derives, plans[d.Policy])
			p.HasFallback = p.HasFallback || d.When != ""
			plans[d.Policy].Marked = plans[d.Policy].Marked || d.When == policy.WhenKnown
		}
	}
	return nil
}

// planOf returns the plan of a policy in force; see planSet.find.
func (ps *plans) planOf(name string, id keys.Identifier) (p *demand.Plan, canonical keys.Identifier, found policy.Found, err error) {
	return ps.inForce.Load().find(name, id)
}

// Canonical returns the canonical form of id under policy, or id itself if the policy can't read it.
func (e *Engine) Canonical(policy string, id keys.Identifier) keys.Identifier {
	p := e.plans.inForce.Load().byName[policy]
	if p == nil || p.Read == nil {
		return id
	}
	if canonical, _, err := readIdentifier(p, id); err == nil {
		return canonical
	}
	return id
}

// deriveFrom appends to all the demands that the policy of c derives in this try from parts of its identifier. by is the
// index of c's demand.
func deriveFrom(c *demand.Charge, all []derived, by int, parts []string, in try) ([]derived, error) {
	all = slices.Grow(all, len(parts))
	for i, part := range parts {
		p, when := c.Plan.Derives[i], c.Plan.Derive[i].When
		if !in.counts(p, when) && when != policy.WhenKnown {
			continue
		}
		id := keys.Identifier(part)
		if p.Read != nil {
			var err error
			if id, _, err = readIdentifier(p, id); err != nil {
				return nil, err // impossible: the check of policies has tried it
			}
		}
		d := derived{demand.Charge{Target: p.Of(id), Op: c.Op, Cost: c.Cost, Derived: true}, id, by}
		if when == policy.WhenKnown {
			c.Marks = append(c.Marks, demand.Mark{Target: d.Target})
		}
		if in.counts(p, when) && (when != policy.WhenKnown || d.Key == in.known) {
			all = append(all, d)
		}
	}
	return all, nil
}

// together returns charges with the derived charges of more. Charges of the same key become one, with the sum of their
// costs.
func (c *Call) together(charges []demand.Charge, more []derived) ([]demand.Charge, error) {
	for i := range more {
		d := &more[i]
		at := indexOf(charges, d.Key)
		if at < 0 {
			at = len(charges)
			charges = append(charges, d.Charge)
		} else {
			charges[at].Cost += d.Cost
		}
		if charges[at].Cost == 0 { // its reservation is settled at CostNothing
			continue
		}
		if err := checkCharge(&charges[at]); err != nil {
			return nil, c.inDemand(d.by, err)
		}
	}
	if len(charges) > policy.MaxDemands {
		return nil, &FieldError{Field: "demands", Detail: fmt.Sprintf("%d demands, with those that their policies derive: use at most %d",
			len(charges), policy.MaxDemands)}
	}
	return charges, nil
}

func indexOf(charges []demand.Charge, key store.Key) int {
	for i := range charges {
		if charges[i].Key == key {
			return i
		}
	}
	return -1
}

// KeyOf returns the key under which id counts, by the hash key for writes. Errors wrap ErrInvalid or ErrUnknownPolicy.
func (e *Engine) KeyOf(policy string, id keys.Identifier) (store.Key, error) {
	p, id, _, err := e.plans.planOf(policy, id)
	if err != nil {
		return store.Key{}, err
	}
	return p.Keys[0].Of(id), nil
}
