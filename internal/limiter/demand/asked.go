package demand

import "sync"

// asked are the plans that decide for demands which bring a limit of their own.
type asked struct {
	mu    sync.RWMutex
	plans map[int64]*Plan
}

// maxAsked is how many of them a plan keeps, of some 1.5 kB: far more than there are tariffs. Beyond, all are made anew.
const maxAsked = 1 << 10

// Asked returns the plan that decides for a demand which brings units as its limit, 0 if it brings none. It counts
// under the same keys as p, and keeps as much. It is p if no limit of p comes with demands.
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

// put keeps made, unless there is another one already, and returns the one that is kept.
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
	made.Parts = nil
	for _, part := range p.Parts {
		made.Parts = append(made.Parts, part.Asked(units))
	}
	if p.Local != nil {
		made.Local = p.Local.Asked(units)
	}
	return &made
}

// AskedLimit returns the limit that a demand brings to p; 0: none. An owner is told it beside the key.
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
