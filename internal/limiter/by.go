package limiter

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// at returns the plan that decides for key: p, but for the identifiers that a limit of p has a
// number of its own for. It goes by the key alone, which is all that an owner is told.
func (p *plan) at(key store.Key) *plan {
	if p.byKey == nil {
		return p
	}
	if own := p.byKey[key]; own != nil {
		return own
	}
	return p
}

// vary makes the plans that decide in p's place where its limits have other numbers. They are the
// same policy: keys, counts and print are those of p.
func (e *Engine) vary(p *plan) error {
	values := p.ByValues()
	if len(values) == 0 {
		return nil
	}
	if p.read != nil {
		for _, found := range p.ReadByProblems(p.read) {
			return fmt.Errorf("policy %q: %w", p.Name, found)
		}
	}
	p.byKey = make(map[store.Key]*plan, len(values)*len(p.keys))
	for _, value := range values {
		own := e.newPlans(p.For(value))
		own.print, own.read, own.derives = p.print, p.read, p.derives
		for _, hash := range p.keys {
			p.byKey[hash.Of(keys.Identifier(value))] = own
		}
	}
	return nil
}
