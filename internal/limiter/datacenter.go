package limiter

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// MoveTo replaces Options.Datacenter by the local data centre's name, once the store has reported it. Guarantees that
// hold within a data centre use other keys from then on. The store must answer no request before, nor for a store
// timeout after: calls in progress have the old keys.
func (e *Engine) MoveTo(datacenter string) error { return e.plans.moveTo(datacenter) }

func (ps *plans) moveTo(datacenter string) error {
	ps.setting.Lock()
	defer ps.setting.Unlock()
	ps.settings.MoveTo(datacenter)
	set := ps.inForce.Load()
	if set.byName == nil { // there are no policies yet
		return nil
	}
	var policies []policy.Policy
	for _, p := range set.policies() {
		policies = append(policies, *p)
	}
	return ps.put(set.version, policies)
}
