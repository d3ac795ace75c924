package limiter

import (
	"context"
	"slices"
)

// decideAll decides charges at now, all or none of them, of which some are decided in memory:
// these first, as taking them back costs nothing. Others may be denied meanwhile for
// units that are.
func (b *behind) decideAll(ctx context.Context, e *Engine, charges []charge, now Instant) {
	var near, far []charge
	for i := range charges {
		if c := &charges[i]; c.plan.behind {
			near = append(near, *c)
		} else {
			far = append(far, *c)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout) // to wait for room, and for the others
	defer cancel()
	now, at := b.enterAll(ctx, near, now)
	if at == seated {
		defer b.room.settle()
	}
	if at != turnedAway {
		b.decideInMemory(ctx, near, now)
	}
	switch {
	case len(far) == 0:
	case anyBlocks(near):
		e.askInVain(ctx, far)
	default:
		e.asGuest(ctx, far, func(ctx context.Context) { e.shared.decideAll(ctx, far) })
		switch {
		case slices.ContainsFunc(far, func(c charge) bool { return tooEarly(c.err) }): // all of it is decided anew
			b.takeBack(ctx, near, e.now(), func(*charge) bool { return true })
		case anyBlocks(far):
			b.takeBack(ctx, near, e.now(), func(c *charge) bool { return c.opIf(true) == OpCheck })
		}
	}
	for i := range near {
		b.note(&near[i], at == seated)
	}
	for i := range charges {
		from := &far
		if charges[i].plan.behind {
			from = &near
		}
		charges[i], *from = (*from)[0], (*from)[1:]
	}
}

// enterAll waits until there is room for what charges may count, one place for all of them: they
// are few. It is as enter, and fails all of them.
func (b *behind) enterAll(ctx context.Context, charges []charge, now Instant) (Instant, entered) {
	if b.room.free() || !slices.ContainsFunc(charges, func(c charge) bool { return b.needsRoom(&c) }) {
		return now, walkedIn
	}
	if b.deniedTogether(ctx, charges, now) {
		return now, turnedAway
	}
	at, err := turnedAway, b.room.wait(ctx, b.opts.StoreTimeout/2)
	if err == nil {
		at = seated
		now, err = b.opts.instant()
	}
	if err != nil {
		failCharges(charges, err)
	}
	return now, at
}

// deniedTogether decides charges of which memory denies one, where nothing is counted then.
func (b *behind) deniedTogether(ctx context.Context, charges []charge, now Instant) bool {
	if slices.ContainsFunc(charges, func(c charge) bool { return c.opIf(true) != OpCheck || b.isStale(c.key) }) {
		return false
	}
	ops := make([]Op, len(charges))
	for i := range charges {
		ops[i], charges[i].op = charges[i].op, OpCheck
	}
	b.decideInMemory(ctx, charges, now)
	for i := range charges {
		charges[i].op = ops[i]
	}
	if anyBlocks(charges) {
		return true
	}
	for i := range charges {
		charges[i].decision, charges[i].err = Decision{}, nil
	}
	return false
}

// decideInMemory decides charges, all or none of them, unless they have failed.
func (b *behind) decideInMemory(ctx context.Context, charges []charge, now Instant) {
	if charges[0].err != nil {
		return
	}
	for i := range charges {
		b.catchUp(ctx, &charges[i])
	}
	targets := make([]target, len(charges))
	for i := range charges {
		c := &charges[i]
		targets[i] = c.target
		c.target = target{plan: c.plan.local, key: c.key}
	}
	b.memory.decideAll(ctx, charges, now)
	for i := range charges {
		c := &charges[i]
		c.target = targets[i]
		c.decision.Policy = &c.plan.Policy
	}
}

func failCharges(charges []charge, err error) {
	for i := range charges {
		charges[i].err = err
	}
}

// anyBlocks reports whether one of charges denies all of their call.
func anyBlocks(charges []charge) bool {
	for i := range charges {
		c := &charges[i]
		switch {
		case !c.op.mayDeny():
		case c.err != nil && c.plan.onFailure() == OnStoreErrorDeny, c.err == nil && !c.decision.stands():
			return true
		}
	}
	return false
}

// takeBack takes out of memory what was counted for those of charges that are to be. They are
// answered as checks then.
func (b *behind) takeBack(ctx context.Context, charges []charge, now Instant, which func(*charge) bool) {
	for i := range charges {
		c := &charges[i]
		op := c.op
		if c.err != nil || op == OpCheck || !which(c) {
			continue
		}
		counted := c.decision.entry
		c.op, c.id = OpCheck, EventID{}
		b.inMemory(c, func() {
			if c.decision.Recorded == RecordedYes {
				c.err = b.memory.giveBack(ctx, &c.target, &counted, true, now)
			}
			if c.err == nil {
				b.memory.decide(ctx, c, now)
			}
		})
		if c.plan.cell && counted != (entry{}) {
			b.noteScooped(&c.target, &counted)
		}
		c.op = op
	}
}
