package limiter

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Explanation is everything that has a say in what an identifier is answered under a
// policy, as far as this instance knows.
type Explanation struct {
	Policy   string
	Key      store.Key
	Answer   count.Decision // what a check is answered now; by an override or a block, where there is one
	Counted  count.Decision // what the limits alone say of what is counted, as the store has it now
	Override *Override      // that is in force; nil: none
	Block    *KeyBlock      // that follows a denial; nil: none
	Reset    store.Instant  // up to which instant what was counted is forgotten, as long as that matters; 0: nothing is
	Derived  []*Explanation // of what the policy derives from the identifier, and asks for in the same call
	Failed   error          // why nobody knows what is counted, a StoreError; nil: it is known. Counted and Reset are empty then
}

// KeyBlock is a block of a key.
type KeyBlock struct {
	Until   store.Instant
	Strikes int // blocks in a row, this one included
}

// Explain tells why d is allowed or denied now. It records nothing, and asks the store
// whatever is remembered. Errors are those of Check but for StoreErrors: Failed has them.
func (e *Engine) Explain(ctx context.Context, d Demand) (*Explanation, error) {
	var c charge
	parts, err := e.charge(e.plans.Load(), &c, count.OpCheck, &d)
	if err != nil {
		return nil, err
	}
	more, err := c.derive(nil, 0, parts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	x := e.explain(ctx, &c)
	for i := range more {
		e.override(&more[i].charge)
		x.Derived = append(x.Derived, e.explain(ctx, &more[i].charge))
	}
	return x, nil
}

func (e *Engine) explain(ctx context.Context, c *charge) *Explanation {
	x := &Explanation{Policy: c.plan.Name, Key: c.key}
	now := e.now()
	if o := e.overrides.of(&c.target, now); o != nil {
		x.Override = &o.Override
	}
	if b := e.blocks.Of(c.key, c.old, now); c.plan.blocks() && b.Until > now {
		x.Block = &KeyBlock{Until: b.Until, Strikes: b.Strikes}
	}
	counted := *c
	counted.ends = true // it is asked for by itself, whatever is remembered
	if e.ask(ctx, &counted); counted.err == nil {
		x.Counted = counted.decision
		x.Reset, counted.err = e.resetOf(ctx, &c.target)
	}
	if x.Failed = counted.err; x.Failed != nil {
		x.Counted = count.Decision{}
		if already := (*StoreError)(nil); !errors.As(x.Failed, &already) {
			x.Failed = &StoreError{Recorded: count.RecordedNo, Err: x.Failed}
		}
	}
	x.answer(ctx, e, c)
	return x
}

// answer fills in what a check of c is answered.
func (x *Explanation) answer(ctx context.Context, e *Engine, c *charge) {
	switch {
	case c.plan.Mode == policy.ModeOff:
		c.decision = c.plan.Unasked()
	case e.decideUnasked(c):
	case x.Failed != nil:
		c.decision, _ = e.onStoreError(ctx, c, x.Failed)
	default:
		c.decision = x.Counted
	}
	c.tellOverride()
	x.Answer = c.decision
}

// resetOf returns the instant up to which what was counted for t is forgotten.
func (e *Engine) resetOf(ctx context.Context, t *target) (latest store.Instant, err error) {
	plans := t.plan.parts
	if len(plans) == 0 {
		plans = []*plan{t.plan}
	}
	for _, p := range plans {
		part := t.as(p)
		q := p.Query(part.key, e.now(), 1, nil)
		s, err := e.store().Read(ctx, &q)
		if err == nil && p.Cell {
			_, err = p.open(&s)
		}
		if err != nil {
			return 0, &StoreError{Recorded: count.RecordedNo, Err: err}
		}
		latest = max(latest, s.Reset)
	}
	if e.shared != nil { // a counter does not tell until something was counted after it
		known, _ := e.shared.counted.resets.Get(t.key)
		latest = max(latest, known)
	}
	return latest, nil
}
