package limiter

import (
	"cmp"
	"fmt"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// single is memory for a call of one charge: most are, and nobody keeps it. It goes back as it is, and the next
// call has it, with what it has in its Memory.
type single [1]demand.Charge

// charger makes charges of what callers demand.
type charger struct {
	plans     *plans
	overrides *overrides.Set
}

// charge makes c what d asks for under set, ready to decide, and returns the parts of the identifier that it is to be
// counted for as well. Of what c was, its Memory stays.
func (m *charger) charge(set *planSet, c *demand.Charge, op count.Op, d *Demand) ([]string, error) {
	p, id, found, err := set.find(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	*c = demand.Charge{Op: op, Cost: cmp.Or(d.Cost, 1), Refused: found.Refused, Memory: c.Memory}
	p.Locate(&c.Target, id)
	if m.overrides.Live.Load() > 0 {
		m.override(c)
	}
	if c.Cost < 1 || c.Cost > c.Plan.Fitting {
		if err := checkCharge(c); err != nil {
			return nil, err
		}
	}
	if p.Mode == policy.ModeOff || p.Mode == policy.ModeEnforce && c.Refused != "" && judge.IsRefused(c) { // nothing of it counts
		return nil, nil
	}
	return found.Parts, nil
}

// find returns the plan of a policy, the canonical form of id there, and what the policy finds in it.
// It refuses identifiers that nothing can be counted for.
func (p *planSet) find(name string, id keys.Identifier) (made *demand.Plan, canonical keys.Identifier, found policy.Found, err error) {
	if made = p.byName[name]; made == nil {
		return nil, "", found, p.unknown()
	}
	if len(id) == 0 || len(id) > keys.MaxIdentifierLen {
		return nil, "", found, &FieldError{Field: "identifier", Detail: fmt.Sprintf("%d bytes long: use 1 to %d", len(id), keys.MaxIdentifierLen)}
	}
	if made.Read == nil { // as it is
		return made, id, found, nil
	}
	canonical, found, err = readIdentifier(made, id)
	return made, canonical, found, err
}

// readIdentifier returns the canonical form of id under p, which reads identifiers, and what p finds in it: the parts
// that it is to be counted for as well, and whether p refuses it.
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

// checkCharge refuses what c can't ask for. An override to allow or to block asks no limit
// whether it could ever hold that.
func checkCharge(c *demand.Charge) error {
	op := c.Op
	if c.Override != nil && c.Override.Kind != policy.OverrideLimits {
		op = count.OpRecord
	}
	return checkCost(c.Plan, op, c.Cost)
}
