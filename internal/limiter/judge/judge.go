package judge

import (
	"context"
	"slices"
	"time"

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
	// ObserveCall learns of every call: see the engine's. Nil: nobody does.
	ObserveCall func(op count.Op, p *policy.Policy, outcome count.Outcome)
}

// Decider is the way in which an engine decides over its store and changes what is counted there. There are
// two: held, over a store in this process's memory, and handon, over one that instances share.
type Decider interface {
	// Instant returns the instant to decide at. The error says that this instance's clock is beyond the tolerance.
	Instant() (store.Instant, error)
	// Decide decides c, and fills in its decision and error.
	Decide(ctx context.Context, c *demand.Charge)
	// DecideAll decides charges, all or none of them, and fills in their decisions and errors.
	DecideAll(ctx context.Context, charges []demand.Charge)
	// Recall decides c, and reports true, if what is remembered of its key leaves no room.
	Recall(c *demand.Charge) bool
	// KnownFull is Recall while the store does not answer.
	KnownFull(c *demand.Charge) bool

	// GiveBack takes out of the store what n counted for t, of sums only if these are those that counted it.
	// It must be called once only.
	GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error
	// EndHold is GiveBack of what is held until an instant. It may be called again: mark is a key of its own, for
	// as long as kept.
	EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, ends store.Instant, mark store.Key, kept time.Duration) error
	// SettleEvent makes n's event stay, which was held, if t keeps events. It may ask whether one that is not
	// there was removed.
	SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry, removed func() (bool, error)) error
	// Reset forgets all that is counted for t. The error is a StoreError.
	Reset(ctx context.Context, t *demand.Target) error
	// AsGuest does do, which decides for targets in several steps. What it did stands only if the error is nil.
	AsGuest(ctx context.Context, targets []*demand.Target, do func(context.Context) error) error

	// Changed ends what is remembered of key: somebody gave something back.
	Changed(key store.Key)
	// LastReset returns the latest reset of key that is known beside what the store tells; 0: none.
	LastReset(key store.Key) store.Instant
	// Run does what is to be done beside decisions, until ctx ends, and then what is left of it.
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

// decideOverridden decides c by its override, if that is to allow or to block it.
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

// Tell says in the decisions of charges, which are those of a call, which override decided them, and
// tells the observers, unless the call is told later.
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

// observed returns what observers know op as.
func observed(op count.Op) count.Op {
	if op == count.OpReserve {
		return count.OpCheck
	}
	return op
}

// outcomeOf returns what became of a call for the demand of charge i: of one that is denied, why; else
// what became of the demand, or that another one would deny it.
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
