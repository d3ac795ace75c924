package demand

import "sync"

// Made keeps plans that are made when they are first needed. It is safe for concurrent use. The zero value is empty.
type Made[K comparable] struct {
	mu    sync.RWMutex
	plans map[K]*Plan
}

// maxMade is the number of plans that are kept, of some 1.5 to 3 kB each. An application has far fewer tariffs. Beyond it, all
// are made anew.
const maxMade = 1 << 10

// Get returns the plan for key, nil if there is none.
func (m *Made[K]) Get(key K) *Plan {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.plans[key]
}

// Put keeps made, unless there is a plan for key already, and returns the plan that is kept.
func (m *Made[K]) Put(key K, made *Plan) *Plan {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.plans[key]; other != nil {
		return other
	}
	if m.plans == nil || len(m.plans) >= maxMade {
		m.plans = make(map[K]*Plan)
	}
	m.plans[key] = made
	return made
}

// Asked returns the plan for a demand that brings units as its limit; 0 means that it brings none. The plan counts under the
// same keys as p, and keeps as many events. It is p itself if demands can't bring a limit of p.
func (p *Plan) Asked(units int64) *Plan {
	if units == 0 || p.asked == nil {
		return p
	}
	if made := p.asked.Get(units); made != nil {
		return made
	}
	return p.asked.Put(units, p.withLimit(units))
}

// withLimit makes the plan that Asked returns.
func (p *Plan) withLimit(units int64) *Plan {
	made := *p
	made.RuleSet, made.asked, made.Definition.Limit = p.RuleSet.Asked(units), nil, units
	if p.Local != nil {
		made.Local = p.Local.Asked(units)
	}
	return &made
}

// TakesLimit reports whether a demand may bring units as its limit to p.
func (p *Plan) TakesLimit(units int64) bool {
	i := p.FromRequest()
	return i >= 0 && units >= 1 && units <= p.Limits[i].Max
}
