package judge

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// remember counts admitted units in this instance's own store, which decides while the shared store fails.
func (j *Judge) remember(ctx context.Context, c *demand.Charge, d *count.Decision) {
	if c.Plan.OnStoreError == policy.OnStoreErrorLocal && j.Local != nil && d.Recorded == count.RecordedYes {
		local := locally(c, count.OpRecord)
		j.Local.Decide(ctx, local)
		c.Memory = local.Memory
	}
}

// locally returns the charge that this instance's own store decides in place of c.
func locally(c *demand.Charge, op count.Op) *demand.Charge {
	return &demand.Charge{Target: demand.Target{Plan: c.Plan.Local, Key: c.Key}, Op: op, Cost: c.Cost, Hold: c.Hold, Memory: c.Memory}
}

// onStoreError decides c without the store, by its policy's on_store_error.
func (j *Judge) onStoreError(ctx context.Context, c *demand.Charge, cause error) (count.Decision, error) {
	failed, ok := errors.AsType[*count.StoreError](cause)
	if !ok {
		failed = &count.StoreError{Recorded: count.RecordedNo, Err: cause}
	}
	if c.Op == count.OpCheck {
		failed.Recorded = count.RecordedNo
	}
	p := c.Plan
	switch {
	case p.OnStoreError == policy.OnStoreErrorAllow || p.Mode == policy.ModeShadow:
		d := p.Unasked()
		d.Degraded, d.Recorded = true, failed.Recorded
		return d, nil
	case j.Denials != nil && j.Denials.KnownFull(c):
		c.Decision.Degraded, c.Decision.Recorded = true, failed.Recorded
		return c.Decision, nil
	case p.OnStoreError == policy.OnStoreErrorLocal && j.Local != nil:
		local := locally(c, c.Op)
		j.Local.Decide(ctx, local)
		if local.Err != nil {
			return refusal(p, failed), failed
		}
		d := local.Decision
		d.Policy, d.Degraded, d.Recorded, d.Entry = &p.Policy, true, failed.Recorded, count.Entry{}
		return d, nil
	}
	return refusal(p, failed), failed
}

// refusal returns the decision to deny because the store failed.
func refusal(p *demand.Plan, failed *count.StoreError) count.Decision {
	d := p.Unasked()
	d.Allowed, d.WouldAllow, d.Remaining = false, false, 0
	d.Degraded, d.Recorded = true, failed.Recorded
	return d
}

// FailAll decides charges without the store, by their policies' on_store_error. It returns the error of the first charge
// whose policy denies. Without charges, because the call has not been resolved, it applies no policy and returns cause.
func (j *Judge) FailAll(ctx context.Context, charges []demand.Charge, recorded count.Recorded, cause error) error {
	if len(charges) == 0 {
		return &count.StoreError{Recorded: recorded, Err: cause}
	}
	var failed error
	for i := range charges {
		c := &charges[i]
		if c.Plan.Mode == policy.ModeOff {
			c.Decision = c.Plan.Unasked()
			continue
		}
		c.Decision, c.Err = j.onStoreError(ctx, c, &count.StoreError{Recorded: recorded, Err: cause})
		if failed == nil {
			failed = c.Err
		}
	}
	j.Tell(charges)
	return failed
}
