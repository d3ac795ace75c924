package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// isRefused reports whether a rule about numbers decides c: it stands below an override to allow
// or to block, and no record is refused.
func isRefused(c *demand.Charge) bool {
	overridden := c.Override != nil && c.Override.Kind != policy.OverrideLimits
	return c.Refused != "" && !overridden && c.IsUnasked()
}

// decideRefused decides c by the rule that refuses it, if there is one. Nobody is asked, and
// nothing is counted.
func decideRefused(c *demand.Charge) (decided bool) {
	if !isRefused(c) {
		return false
	}
	c.Decision = c.Plan.Refused(c.Refused)
	return true
}
