package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// isRefused reports whether a rule about numbers decides c: it stands below an override to allow
// or to block, and no record is refused.
func (c *charge) isRefused() bool {
	overridden := c.over != nil && c.over.Kind != policy.OverrideLimits
	return c.refused != "" && !overridden && c.isUnasked()
}

// decideRefused decides c by the rule that refuses it, if there is one. Nobody is asked, and
// nothing is counted.
func (c *charge) decideRefused() (decided bool) {
	if !c.isRefused() {
		return false
	}
	c.decision = c.plan.refuse(c.refused)
	return true
}

// refuse returns the decision to deny for a reason that no wait changes, without having asked
// anyone what is counted.
func (p *plan) refuse(reason policy.Reason) count.Decision {
	var d count.Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		limits[i].Verdict = count.Verdict{RetryAfter: count.Never}
	}
	d.Reason = reason
	d.Conclude()
	return d
}
