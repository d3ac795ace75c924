package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// single is memory for a call of one charge: most are, and nobody keeps it.
type single struct {
	charges [1]charge
	still   stillCharge
}

// borrow returns memory until it is given back.
func (e *Engine) borrow() *single {
	if one, ok := e.borrowed.Get().(*single); ok {
		return one
	}
	return new(single)
}

// release gives one back, as it is: the next call has it.
func (e *Engine) release(one *single) { e.borrowed.Put(one) }

// charge makes c, whatever it was, what d asks for under set, ready to decide, and returns the
// parts of the identifier that it is to be counted for as well.
func (e *Engine) charge(set *planSet, c *charge, op count.Op, d *Demand) ([]string, error) {
	cost := d.Cost
	if cost == 0 {
		cost = 1
	}
	p, id, parts, err := set.find(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	*c = charge{}
	p.locate(&c.target, id)
	c.op, c.cost = op, cost
	e.override(c)
	if cost < 1 || cost > c.plan.Fitting {
		if err := c.checkCost(); err != nil {
			return nil, err
		}
	}
	if p.Mode == policy.ModeOff { // nothing of it counts
		parts = nil
	}
	return parts, nil
}

// checkCost refuses what c can't ask for. An override to allow or to block asks no limit
// whether it could ever hold that.
func (c *charge) checkCost() error {
	op := c.op
	if c.over != nil && c.over.Kind != policy.OverrideLimits {
		op = count.OpRecord
	}
	return c.plan.checkCost(op, c.cost)
}
