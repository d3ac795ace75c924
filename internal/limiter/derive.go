package limiter

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// derived is a demand on another policy that a demand brings along.
type derived struct {
	charge
	by int // index of the demand that brought it
}

// readIdentifiers gives plans what reads their identifiers, and those that they derive.
func (e *Engine) readIdentifiers(policies []policy.Policy, plans map[string]*plan) error {
	for i, found := range policy.DeriveProblems(policies) {
		return fmt.Errorf("policy %q: %w", policies[i].Name, found[0])
	}
	for _, p := range plans {
		if p.Normalize.Form == "" {
			continue
		}
		if e.opts.Identifiers == nil {
			return fmt.Errorf("policy %q: the engine was not given what reads identifiers of the form %s", p.Name, p.Normalize.Form)
		}
		read, err := e.opts.Identifiers(p.Normalize, p.Derive)
		if err != nil {
			return fmt.Errorf("policy %q: normalize: %w", p.Name, err)
		}
		p.read = read
		for _, d := range p.Derive {
			p.derives = append(p.derives, plans[d.Policy])
		}
	}
	return nil
}

// planOf returns the plan of a policy in force; see planSet.find.
func (e *Engine) planOf(policy string, id keys.Identifier) (*plan, keys.Identifier, []string, error) {
	return e.plans.Load().find(policy, id)
}

// find returns the plan of a policy, the canonical form of id there, and the parts of it that
// the policy derives. It refuses identifiers that nothing can be counted for.
func (p *planSet) find(policy string, id keys.Identifier) (*plan, keys.Identifier, []string, error) {
	made := p.of(policy)
	if made == nil {
		return nil, "", nil, p.unknown()
	}
	if len(id) == 0 || len(id) > keys.MaxIdentifierLen {
		return nil, "", nil, &FieldError{Field: "identifier", Detail: fmt.Sprintf("%d bytes long: use 1 to %d", len(id), keys.MaxIdentifierLen)}
	}
	id, parts, err := made.readIdentifier(id)
	return made, id, parts, err
}

// Canonical returns id as it is counted under policy; what can't be read as it is.
func (e *Engine) Canonical(policy string, id keys.Identifier) keys.Identifier {
	p := e.plans.Load().of(policy)
	if p == nil || p.read == nil {
		return id
	}
	if canonical, _, err := p.readIdentifier(id); err == nil {
		return canonical
	}
	return id
}

// readIdentifier returns the canonical form of id under p, and the parts that it is to be
// counted for as well.
func (p *plan) readIdentifier(id keys.Identifier) (keys.Identifier, []string, error) {
	if p.read == nil {
		return id, nil, nil
	}
	canonical, parts, err := p.read(string(id))
	if err != nil {
		return "", nil, &FieldError{Field: "identifier", Detail: err.Error()}
	}
	if len(canonical) > keys.MaxIdentifierLen {
		return "", nil, &FieldError{
			Field:  "identifier",
			Detail: fmt.Sprintf("%d bytes long in its canonical form: use 1 to %d", len(canonical), keys.MaxIdentifierLen),
		}
	}
	return keys.Identifier(canonical), parts, nil
}

// derive appends to all what c, of the demand by, brings along for parts of its identifier.
func (c *charge) derive(all []derived, by int, parts []string) ([]derived, error) {
	for i, part := range parts {
		p := c.plan.derives[i]
		id, _, err := p.readIdentifier(keys.Identifier(part))
		if err != nil {
			return nil, err // none: takes has seen to it
		}
		all = append(all, derived{charge{target: p.of(id), op: c.op, cost: c.cost}, by})
	}
	return all, nil
}

// together returns charges with those that they bring along: what counts under the same
// key, once with the sum of the costs.
func (c *Call) together(charges []charge, more []derived) ([]charge, error) {
	for i := range more {
		d := &more[i]
		at := indexOf(charges, d.key)
		if at < 0 {
			at = len(charges)
			charges = append(charges, d.charge)
		} else {
			charges[at].cost += d.cost
		}
		if err := charges[at].checkCost(); err != nil {
			return nil, c.inDemand(d.by, err)
		}
	}
	if len(charges) > policy.MaxDemands {
		return nil, &FieldError{Field: "demands", Detail: fmt.Sprintf("%d demands, with those that their policies derive: use at most %d",
			len(charges), policy.MaxDemands)}
	}
	return charges, nil
}

func indexOf(charges []charge, key store.Key) int {
	for i := range charges {
		if charges[i].key == key {
			return i
		}
	}
	return -1
}
