package limiter

// Machine decides by the pure functions alone, over a state that it keeps whole.
type Machine struct {
	plan  *plan
	state State
}

// NewMachine returns a Machine that has seen nothing.
func NewMachine(p Policy) *Machine {
	m := &Machine{plan: newPlan(p, &Options{}, true)}
	m.state.Logs = make([]Log, len(m.plan.logs))
	return m
}

// Do decides and, unless op is OpCheck, remembers.
func (m *Machine) Do(op Op, now Instant, cost int64) Decision {
	return m.plan.decide(&m.state, op, EventID{}, now, cost)
}

// Reset forgets everything at or before at.
func (m *Machine) Reset(at Instant) { m.state.Reset = at }
