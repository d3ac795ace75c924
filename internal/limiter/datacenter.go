package limiter

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// MoveTo names the local data centre once the store has told its name, in the place of
// Options.Datacenter. Promises that end at its border count under other keys from then on. The
// store must answer nothing before, nor for a store timeout after: calls under way have the old
// keys.
func (e *Engine) MoveTo(datacenter string) error { return e.plans.moveTo(datacenter) }

func (ps *plans) moveTo(datacenter string) error {
	ps.setting.Lock()
	defer ps.setting.Unlock()
	ps.settings.MoveTo(datacenter)
	set := ps.inForce.Load()
	if set.byName == nil { // none were given yet
		return nil
	}
	var policies []policy.Policy
	for _, p := range set.policies() {
		policies = append(policies, *p)
	}
	return ps.put(set.version, policies)
}
