package limiter

import (
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// single is memory for a call of one charge: most are, and nobody keeps it.
type single struct {
	charges [1]demand.Charge
	memory  any // of who decided the last one
}

// singles are those that no call has.
type singles struct{ sync.Pool }

// borrow returns memory until it is given back.
func (s *singles) borrow() *single {
	if one, ok := s.Get().(*single); ok {
		return one
	}
	return new(single)
}

// release gives one back, as it is: the next call has it.
func (s *singles) release(one *single) {
	if memory := one.charges[0].Memory; memory != nil {
		one.memory = memory
	}
	s.Put(one)
}

// charger makes charges of what callers demand.
type charger struct {
	plans     *plans
	overrides *overrides.Set
}

// charge makes c, whatever it was, what d asks for under set, ready to decide, and returns the
// parts of the identifier that it is to be counted for as well.
func (m *charger) charge(set *planSet, c *demand.Charge, op count.Op, d *Demand) ([]string, error) {
	cost := d.Cost
	if cost == 0 {
		cost = 1
	}
	p, id, found, err := set.find(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	*c = demand.Charge{}
	p.Locate(&c.Target, id)
	c.Op, c.Cost, c.Refused = op, cost, found.Refused
	m.override(c)
	if cost < 1 || cost > c.Plan.Fitting {
		if err := checkCharge(c); err != nil {
			return nil, err
		}
	}
	if p.Mode == policy.ModeOff || p.Mode == policy.ModeEnforce && judge.IsRefused(c) { // nothing of it counts
		return nil, nil
	}
	return found.Parts, nil
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
