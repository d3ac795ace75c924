package judge

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/held"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Judge decides charges. What stands above the limits comes first: overrides, rules about numbers and blocks. Then
// the Decider is asked what is counted, or the policy, where the store fails.
type Judge struct {
	Settings *demand.Settings
	Decider  Decider
	Blocks   *Blocks
	Local    *held.Decider // decides for OnStoreErrorLocal; nil: nobody does

	// Observe learns of every decision: see the engine's Observer. Nil: nobody does.
	Observe func(op count.Op, key store.Key, cost int64, d *count.Decision)
}

// Decide decides one charge, and fills in its decision and error.
func (j *Judge) Decide(ctx context.Context, c *demand.Charge) {
	p := c.Plan
	if p.Mode == policy.ModeOff {
		c.Decision = p.Unasked()
		return
	}
	if c.Told || j.DecideUnasked(c) {
		return
	}
	var asked store.Instant // that a block is dated by
	if p.Blocks {
		asked = j.Settings.Timing.Instant()
	}
	j.Decider.Decide(ctx, c)
	switch {
	case c.Err == nil:
		if p.Blocks || j.Local != nil {
			j.follow(ctx, c, asked)
		}
	case demand.TooEarly(c.Err), demand.BeginsAnew(c.Err): // nobody failed: it is to be decided once more
		c.Decision = p.Unasked()
	default:
		c.Decision, c.Err = j.onStoreError(ctx, c, c.Err)
	}
}

// DecideUnasked decides c if nobody has to be asked what is counted: by an override to
// allow or to block; where there is none, by a rule about numbers; or else by a block.
func (j *Judge) DecideUnasked(c *demand.Charge) (decided bool) {
	return c.Override != nil && j.decideOverridden(c) || c.Refused != "" && decideRefused(c) || c.Plan.Blocks && j.Blocks.decide(c)
}

// follow does what follows a decision of the Decider's, which was asked at asked: it blocks the key of what is denied
// under a policy that blocks, and remembers what was let through.
func (j *Judge) follow(ctx context.Context, c *demand.Charge, asked store.Instant) {
	if c.Plan.Blocks {
		j.Blocks.punish(c, &c.Decision, asked)
	}
	j.remember(ctx, c, &c.Decision)
}

// recallDenial decides c if what is remembered of its key leaves no room.
func (j *Judge) recallDenial(c *demand.Charge) (decided bool) {
	asked := j.Settings.Timing.Instant()
	if !j.Decider.Recall(c) {
		return false
	}
	if c.Plan.Blocks {
		j.Blocks.punish(c, &c.Decision, asked)
	}
	return true
}

// DeniedUnasked reports whether what is known without asking denies charges, which stand
// or fall together, so that nothing of them is counted whatever the others say. Those that
// deny are decided then.
func (j *Judge) DeniedUnasked(charges []demand.Charge) (denied bool) {
	if slices.ContainsFunc(charges, func(c demand.Charge) bool { return c.OpIf(true) != count.OpCheck }) {
		return false
	}
	for i := range charges {
		c := &charges[i]
		c.Told = c.Plan.Mode == policy.ModeEnforce && (j.DecideUnasked(c) || j.recallDenial(c)) && !c.Decision.WouldAllow
		denied = denied || c.Told
	}
	return denied
}

// Tell says in c's decision which override decided it, and tells the observer.
func (j *Judge) Tell(c *demand.Charge) {
	if c.Override != nil {
		tellOverride(c)
	}
	if j.Observe != nil {
		j.observe(c)
	}
}

func (j *Judge) observe(c *demand.Charge) {
	op := c.Op
	if op == count.OpReserve {
		op = count.OpCheck
	}
	j.Observe(op, c.Key, c.Cost, &c.Decision)
}

// Explain returns what a check of c is answered now, if the limits alone say counted, or the store failed.
func (j *Judge) Explain(ctx context.Context, c *demand.Charge, counted count.Decision, failed error) count.Decision {
	switch {
	case c.Plan.Mode == policy.ModeOff:
		c.Decision = c.Plan.Unasked()
	case j.DecideUnasked(c):
	case failed != nil:
		c.Decision, _ = j.onStoreError(ctx, c, failed)
	default:
		c.Decision = counted
	}
	if c.Override != nil {
		tellOverride(c)
	}
	return c.Decision
}
