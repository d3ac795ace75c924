package judge

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// decideOverridden decides c by its override, if that is to allow or to block it.
func (j *Judge) decideOverridden(c *demand.Charge) (decided bool) {
	switch {
	case c.Override.Kind == policy.OverrideLimits || !c.IsUnasked():
		return false
	case c.Override.Kind == policy.OverrideAllow:
		c.Decision = c.Plan.Unasked()
	default:
		c.Decision = c.Plan.DenyFor(max(0, c.Override.Until.Sub(j.Settings.Timing.Instant())))
		c.Decision.ForgetUsed()
	}
	return true
}

// tellOverride says in c's decision that its override decided it, if that did.
func tellOverride(c *demand.Charge) {
	if c.Override.Kind == policy.OverrideLimits || c.IsUnasked() {
		c.Decision.Override = c.Override.Kind
	}
}

// IsRefused reports whether the rule about numbers that refuses c decides it: such a rule stands below an override to
// allow or to block, and no record is refused.
func IsRefused(c *demand.Charge) bool {
	overridden := c.Override != nil && c.Override.Kind != policy.OverrideLimits
	return !overridden && c.IsUnasked()
}

// decideRefused decides c by the rule that refuses it, if that stands. Nobody is asked, and
// nothing is counted.
func decideRefused(c *demand.Charge) (decided bool) {
	if !IsRefused(c) {
		return false
	}
	c.Decision = c.Plan.Refused(c.Refused)
	return true
}
