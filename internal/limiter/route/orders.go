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

// Resets, refunds, confirmations and ends of holds change the units of a key, and decide nothing. The key's owner makes
// them, because it has the key in memory.

// giveBackUnder gives back or confirms c's units under term, which it leaves, and then informs the other instances.
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

// replaceUnder resets c's key under term, or settles its held event. Then it verifies term: if that has ended, the key's next
// owner may have read the key before the change.
func (r *Router) replaceUnder(ctx context.Context, c *demand.Charge, term owner.Term) (err error) {
	if !c.Plan.ByCell { // without it, the key might be taken for a new one, and its next units be dated before the reset
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

// GiveBack removes n's units for t, whose write was acknowledged, from the store, from sums only if sums is true. The key's
// owner does it. If the owner can't be reached within half of the time, so that it certainly did nothing, this instance
// removes the units and informs the owner. If only the owner can remove them, because of write-behind or concurrent
// limits, this instance asks it again later.
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

// tell informs the other instances that units of t were given back, unless only the key's owner remembers the units.
func (r *Router) tell(ctx context.Context, t *demand.Target) {
	if r.set.GivenBack != nil && !t.Plan.TakesBack {
		r.set.GivenBack(ctx, t)
	}
}

// EndHold is GiveBack for held units. The caller has claimed the reservation, so that they are given back once.
func (r *Router) EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, _ demand.HoldEnd) error {
	e := *n
	if e.Claimed == 0 { // a cell lists claimed entries, so that a repetition changes nothing
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

// Reset removes all units of t's key, in the store and in its owner's memory. The error is a StoreError.
func (r *Router) Reset(ctx context.Context, t *demand.Target) error {
	reset := demand.Charge{Target: *t, Op: owner.OpReset}
	r.Decide(ctx, &reset)
	r.Changed(t.Key)
	return reset.Err
}
