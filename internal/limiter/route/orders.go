package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Resets, refunds, confirmations and ends of holds change what is counted, and decide nothing. The key's owner makes them, as
// it has the key in memory.

// giveBackUnder gives back or confirms c's units under term, which it leaves, and then tells of it.
func (r *Router) giveBackUnder(ctx context.Context, c *demand.Charge, term owner.Term) (err error) {
	if term.Owned() {
		err = r.shared.VerifyTerm(ctx, term)
	}
	switch {
	case errors.Is(err, owner.ErrTermEnded):
		err = fmt.Errorf("%w: %w", owner.ErrRefused, err)
	case err != nil:
		err = &count.StoreError{Recorded: count.RecordedYes, Err: store.Unavailable(err)}
	default:
		err = failureOf(c, r.shared.GiveBackUnder(ctx, &c.Target, term, c.Back))
	}
	term.Leave()
	if !errors.Is(err, owner.ErrRefused) {
		r.tell(ctx, &c.Target)
	}
	return err
}

// replaceUnder resets c's key under term, or settles its held event. A next owner of the key may have read it before that, unless
// term still holds after it.
func (r *Router) replaceUnder(ctx context.Context, c *demand.Charge, term owner.Term) (err error) {
	if !c.Plan.ByCell { // else the key would be new, and its units dated before the reset
		if err := term.Note(c.Key, c.Plan.Life); err != nil {
			return fmt.Errorf("%w: %w", owner.ErrRefused, err)
		}
	}
	if c.Op == owner.OpReset {
		err = r.shared.ResetUnder(ctx, &c.Target, term)
	} else {
		err = r.shared.SettleUnder(ctx, &c.Target, term, c.Back)
	}
	if err != nil || c.Plan.ByCell {
		return failureOf(c, err)
	}
	return verify(ctx, term)
}

// GiveBack removes n's units for t, whose write was acknowledged, from the store, from sums only if sums is true. If the key's
// owner surely did not do it within half of the time, this instance does, and owners hear of it, unless only the owner can:
// then the owner does it later.
func (r *Router) GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	if !sums && t.Plan.Cell {
		return r.giveBackHere(ctx, t, n, sums)
	}
	e := *n
	e.Again = n.Again || !sums
	c := &demand.Charge{Target: *t, Op: owner.OpGiveBack, Back: &e}
	limited, cancel := clock.Within(ctx, r.set.StoreTimeout)
	defer cancel()
	until, _ := limited.Deadline()
	limited, stop := clock.Within(limited, time.Until(until)/2)
	defer stop()
	r.Decide(limited, c)
	switch {
	case !errors.Is(c.Err, errUnreached):
		return c.Err
	case !t.Plan.Behind && !t.Plan.TakesBack:
		return r.giveBackHere(ctx, t, n, sums)
	}
	failed := c.Err
	r.shared.Later(func(ctx context.Context) error {
		if r.Decide(ctx, c); errors.Is(c.Err, errUnreached) {
			return c.Err
		}
		return nil
	})
	return failed
}

// giveBackHere gives n's units back without the owner of t's key.
func (r *Router) giveBackHere(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	err := r.shared.GiveBack(ctx, t, n, sums)
	r.Changed(t.Key)
	r.tell(ctx, t)
	return err
}

// tell tells the other instances that units of t were given back, if they know anything that this changes.
func (r *Router) tell(ctx context.Context, t *demand.Target) {
	if r.set.GivenBack != nil && !t.Plan.TakesBack {
		r.set.GivenBack(ctx, t)
	}
}

// EndHold is GiveBack for held units. The caller's claim makes sure that it happens once.
func (r *Router) EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, _ demand.HoldEnd) error {
	e := *n
	if e.Claimed == 0 { // by a claim, a cell shows whether an earlier attempt was stored
		e.Claimed = r.set.Timing.Instant()
	}
	return r.GiveBack(ctx, t, &e, sums)
}

// SettleEvent makes n's held event permanent, if t keeps events.
func (r *Router) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry) error {
	if len(t.Plan.Logs) == 0 {
		return nil
	}
	settle := demand.Charge{Target: demand.Target{Plan: t.Plan, Key: t.Key}, Op: owner.OpSettle, Back: n}
	r.Decide(ctx, &settle)
	return settle.Err
}

// Reset removes all that is counted for t, and makes its owner drop it from memory. The error is a StoreError.
func (r *Router) Reset(ctx context.Context, t *demand.Target) error {
	reset := demand.Charge{Target: *t, Op: owner.OpReset}
	r.Decide(ctx, &reset)
	r.Changed(t.Key)
	return reset.Err
}
