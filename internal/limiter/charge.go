package limiter

// borrow returns memory for a charge until it is given back: most calls are of one, and
// nobody keeps it.
func (e *Engine) borrow() *[1]charge {
	if one, ok := e.borrowed.Get().(*[1]charge); ok {
		return one
	}
	return new([1]charge)
}

// release forgets what one was of: the next call has it.
func (e *Engine) release(one *[1]charge) {
	*one = [1]charge{}
	e.borrowed.Put(one)
}

// charge makes c, which is zero, what d asks for, ready to decide, and returns the parts
// of the identifier that it is to be counted for as well.
func (e *Engine) charge(c *charge, op Op, d *Demand) ([]string, error) {
	cost := d.Cost
	if cost == 0 {
		cost = 1
	}
	p, id, parts, err := e.planOf(d.Policy, d.Identifier)
	if err != nil {
		return nil, err
	}
	c.target, c.op, c.cost = p.of(id), op, cost
	e.override(c)
	if err := c.checkCost(); err != nil {
		return nil, err
	}
	if p.Mode == ModeOff { // nothing of it counts
		parts = nil
	}
	return parts, nil
}

// checkCost refuses what c can't ask for. An override to allow or to block asks no limit
// whether it could ever hold that.
func (c *charge) checkCost() error {
	op := c.op
	if c.over != nil && c.over.Kind != OverrideLimits {
		op = OpRecord
	}
	return c.plan.checkCost(op, c.cost)
}
