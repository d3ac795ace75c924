package limiter

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// vary makes the plans that decide in p's place where its limits have other numbers. They are the
// same policy: keys, counts and print are those of p.
func (ps *plans) vary(p *demand.Plan) error {
	values := p.ByValues()
	if len(values) == 0 {
		return nil
	}
	if p.Read != nil {
		for _, found := range p.ReadByProblems(p.Read) {
			return fmt.Errorf("policy %q: %w", p.Name, found)
		}
	}
	p.ByKey = make(map[store.Key]*demand.Plan, len(values)*len(p.Keys))
	for _, value := range values {
		own := ps.newPlans(p.For(value))
		own.Print, own.Version, own.Read, own.Derives = p.Print, p.Version, p.Read, p.Derives
		for _, hash := range p.Keys {
			p.ByKey[hash.Of(keys.Identifier(value))] = own
		}
	}
	return nil
}
