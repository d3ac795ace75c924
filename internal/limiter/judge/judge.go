package judge

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/exclusive"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Judge decides charges. Overrides, rules about numbers and blocks come before limits. Then the Decider decides by the
// counts, or the policy's on_store_error if the store fails.
type Judge struct {
	Settings *demand.Settings
	Decider  Decider
	Denials  *denied.Denials // remembered denials; nil: none are remembered, because the store itself is in memory
	Blocks   *Blocks
	Local    *exclusive.Decider // decides for OnStoreErrorLocal; nil: such policies deny

	// Observe is called with every decision, as Observer.Decided of the engine; nil: no call.
	Observe func(op count.Op, key store.Key, cost int64, d *count.Decision)
	// ObserveCall is called with every call's outcome, as Observer.Called of the engine; nil: no call.
	ObserveCall func(op count.Op, p *policy.Policy, outcome count.Outcome)
}

// Decider decides over an engine's store, and changes the counted units. It has two implementations: exclusive.Decider, for
// a store in this process's memory, and route.Router, for a store that instances share.
type Decider interface {
	// Instant returns the instant to decide at. It returns an error if this instance's clock is beyond the tolerance.
	Instant() (store.Instant, error)
	// Decide decides c, and fills in its decision and error.
	Decide(ctx context.Context, c *demand.Charge)
	// DecideAll decides charges, all or none of them, and fills in their decisions and errors.
	DecideAll(ctx context.Context, charges []demand.Charge)

	// GiveBack removes n's units for t from the store. sums says whether t's present sums are those in which n was
	// counted; otherwise it removes nothing from sums. It must be called only once.
	GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error
	// EndHold is GiveBack for the units of a hold that ends. It may be called again with the same end.
	EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, end demand.HoldEnd) error
	// SettleEvent makes n's held event permanent, if t keeps events.
	SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry) error
	// Reset removes all units of t's key. The error is a StoreError.
	Reset(ctx context.Context, t *demand.Target) error

	// Changed drops the remembered state of key, because units were refunded.
	Changed(key store.Key)
	// LastReset returns the latest reset of key that this instance remembers; 0: none.
	LastReset(key store.Key) store.Instant
	// Run does the background work until ctx ends, and then finishes it.
	Run(ctx context.Context)
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
	var asked store.Instant // the date of a block
	if p.Blocks {
		asked = j.Settings.Timing.Instant()
	}
	j.Decider.Decide(ctx, c)
	switch {
	case c.Err == nil:
		if p.Blocks || j.Local != nil {
			j.follow(ctx, c, asked)
		}
	case demand.TooEarly(c.Err): // the store has not failed: c must be decided again under another ID
		c.Decision = p.Unasked()
	default:
		c.Decision, c.Err = j.onStoreError(ctx, c, c.Err)
	}
}

// DecideUnasked decides c if that needs no counts, and reports whether it did: by an override to allow or to block, or else
// by a rule about numbers, or else by a block.
func (j *Judge) DecideUnasked(c *demand.Charge) (decided bool) {
	return c.Override != nil && j.decideOverridden(c) || c.Refused != "" && decideRefused(c) || c.Plan.Blocks && j.Blocks.decide(c)
}

// follow acts on a decision of the Decider, for a call that began at asked: it blocks the key if the decision denies
// and the policy blocks, and counts allowed units in the local store.
func (j *Judge) follow(ctx context.Context, c *demand.Charge, asked store.Instant) {
	if c.Plan.Blocks {
		j.Blocks.punish(c, &c.Decision, asked)
	}
	j.remember(ctx, c, &c.Decision)
}

// decideOverridden decides c by its override if that allows or blocks c, and reports whether it did.
func (j *Judge) decideOverridden(c *demand.Charge) (decided bool) {
	switch {
	case c.Override.Kind == policy.OverrideLimits || !c.IsUnasked():
		return false
	case c.Override.Kind == policy.OverrideAllow:
		c.Decision = c.Plan.Unasked()
	default:
		rest := count.Never
		if !c.Override.Stays() {
			rest = max(0, c.Override.Until.Sub(j.Settings.Timing.Instant()))
		}
		c.Decision = c.Plan.DenyFor(rest)
		c.Decision.ForgetUsed()
	}
	return true
}

// tellOverride notes c's override in its decision, if the override decided it.
func tellOverride(c *demand.Charge) {
	if c.Override.Kind == policy.OverrideLimits || c.IsUnasked() {
		c.Decision.Override = c.Override.Kind
	}
}

// IsRefused reports whether c, which a rule about numbers refuses, is decided by that rule: an override to allow or to block
// takes precedence, and no record is refused.
func IsRefused(c *demand.Charge) bool {
	overridden := c.Override != nil && c.Override.Kind != policy.OverrideLimits
	return !overridden && c.IsUnasked()
}

// decideRefused decides c by the rule about numbers that refuses it, if that rule applies, and reports whether it did. It
// reads and counts nothing.
func decideRefused(c *demand.Charge) (decided bool) {
	if !IsRefused(c) {
		return false
	}
	c.Decision = c.Plan.Refused(c.Refused)
	return true
}

// recallDenial denies c if a remembered denial applies to it, and reports whether it did.
func (j *Judge) recallDenial(c *demand.Charge) (decided bool) {
	asked := j.Settings.Timing.Instant()
	if j.Denials == nil || !j.Denials.Recall(c) {
		return false
	}
	if c.Plan.Blocks {
		j.Blocks.punish(c, &c.Decision, asked)
	}
	return true
}

// DeniedUnasked reports whether charges, which are allowed or denied together, are denied without a read of the store, so
// that none of them is counted. It decides the charges that deny.
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

// Tell calls the observers with the decisions of charges, which are all charges of a call, unless the call is observed
// later. Before, it notes the overrides that decided them.
func (j *Judge) Tell(charges []demand.Charge) {
	quiet := false
	for i := range charges {
		c := &charges[i]
		if c.Override != nil {
			tellOverride(c)
		}
		quiet = quiet || c.Quiet
		if !quiet && j.Observe != nil {
			j.Observe(observed(c.Op), c.Key, c.Cost, &c.Decision)
		}
	}
	if quiet || j.ObserveCall == nil {
		return
	}
	for i := range charges {
		if c := &charges[i]; !c.Derived {
			j.ObserveCall(observed(c.Op), c.Decision.Policy, outcomeOf(charges, i))
		}
	}
}

// observed returns the operation that observers see for op.
func observed(op count.Op) count.Op {
	if op == count.OpReserve {
		return count.OpCheck
	}
	return op
}

// outcomeOf returns the outcome of a call for the demand of charge i. For a denied call, it is the outcome of the first
// charge that denies. Otherwise it is the demand's own outcome, or OutcomeWouldDeny if another demand would deny the call.
func outcomeOf(charges []demand.Charge, i int) count.Outcome {
	own, _ := charges[i].Decision.Outcome()
	if len(charges) == 1 || !charges[i].Decision.Allowed {
		return own
	}
	would := false
	for k := range charges {
		d := &charges[k].Decision
		o, _ := d.Outcome()
		if !d.Allowed {
			return o
		}
		would = would || o == count.OutcomeWouldDeny
	}
	if would && own == count.OutcomeAllowed {
		return count.OutcomeWouldDeny
	}
	return own
}

// Explain returns the answer to a check of c now. counted is the verdict of the limits alone; failed is the error of the
// store, nil if it has answered.
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
