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

// charge makes c, which is zero, what d asks for, ready to decide.
func (e *Engine) charge(c *charge, op Op, d *Demand) error {
	cost := d.Cost
	if cost == 0 {
		cost = 1
	}
	p, err := e.planOf(d.Policy, d.Identifier)
	if err != nil {
		return err
	}
	if err := p.checkCost(op, cost); err != nil {
		return err
	}
	c.target, c.op, c.cost = p.of(d.Identifier), op, cost
	return nil
}
