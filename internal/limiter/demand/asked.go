package demand

import "sync"

// asked has the plans for demands that bring a limit of their own.
type asked struct {
	mu    sync.RWMutex
	plans map[int64]*Plan
}

// maxAsked is the number of such plans that a plan keeps, of some 1.5 kB each: far more than there are tariffs. Past it,
// all are made anew.
const maxAsked = 1 << 10

// Asked returns the plan for a demand that brings units as its limit, or 0 for none. It counts under the same keys as
// p, and keeps as much. It is p if no limit of p comes with demands.
func (p *Plan) Asked(units int64) *Plan {
	if units == 0 || p.asked == nil {
		return p
	}
	p.asked.mu.RLock()
	made := p.asked.plans[units]
	p.asked.mu.RUnlock()
	if made == nil {
		made = p.asked.put(units, p.judgingBy(units))
	}
	return made
}

// put keeps made, unless there is a plan for units already, and returns the plan that is kept.
func (a *asked) put(units int64, made *Plan) *Plan {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.plans[units]; other != nil {
		return other
	}
	if a.plans == nil || len(a.plans) >= maxAsked {
		a.plans = make(map[int64]*Plan)
	}
	a.plans[units] = made
	return made
}

// judgingBy makes the plan of Asked.
func (p *Plan) judgingBy(units int64) *Plan {
	made := *p
	made.Plan, made.asked = p.Plan.Asked(units), nil
	if p.Local != nil {
		made.Local = p.Local.Asked(units)
	}
	return &made
}

// AskedLimit returns the limit that came with the demand for which p was made; 0: none. An owner gets it with the key.
func (p *Plan) AskedLimit() int64 {
	if p.Base == p {
		return 0
	}
	return p.Limits[p.Base.FromRequest()].Limit
}

// TakesLimit reports whether a demand may bring units as its limit to p.
func (p *Plan) TakesLimit(units int64) bool {
	i := p.FromRequest()
	return i >= 0 && units >= 1 && units <= p.Limits[i].Max
}
