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

// order makes the owner of t's key do what call says: a peer, which gets call, or else this instance, by do. It asks the
// owner of that moment again as long as surely nothing was done.
func (r *Router) order(ctx context.Context, t *demand.Target, call owner.Call, do func(owner.Right) error) error {
	for {
		place, err := r.owners.Place(ctx, t.Key)
		if err != nil {
			return err
		}
		unreached := false
		if place.Right != nil {
			err = do(place.Right)
		} else {
			var a owner.Answer
			call.View = place.View
			err = ask(ctx, place.Owner, t, &call, &a)
			unreached = isUndone(err)
			r.Changed(t.Key)
		}
		if !unreached && !errors.Is(err, owner.ErrRefused) {
			return err
		}
		if late := clock.Pause(ctx, owner.Pause); late != nil {
			return fmt.Errorf("%w: the owner of the key can't be reached: %w: %w", store.ErrNotStored, err, store.Unavailable(late))
		}
	}
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
	limited, cancel := clock.Within(ctx, r.set.StoreTimeout)
	defer cancel()
	until, _ := limited.Deadline()
	limited, stop := clock.Within(limited, time.Until(until)/2)
	defer stop()
	err := r.giveBackByOwner(limited, t, &e)
	switch {
	case !isUndone(err):
		return err
	case !t.Plan.Behind && !t.Plan.TakesBack:
		return r.giveBackHere(ctx, t, n, sums)
	}
	of := *t
	r.shared.Later(func(ctx context.Context) error {
		if err := r.giveBackByOwner(ctx, &of, &e); isUndone(err) {
			return err
		}
		return nil
	})
	return err
}

// isUndone reports whether err is that of order where surely nothing was done.
func isUndone(err error) bool {
	failed := (*count.StoreError)(nil)
	return errors.Is(err, store.ErrNotStored) && !errors.As(err, &failed)
}

// giveBackByOwner makes the owner of t's key give e's units back.
func (r *Router) giveBackByOwner(ctx context.Context, t *demand.Target, e *count.Entry) error {
	giveBack := func(right owner.Right) error { return r.giveBackBy(ctx, t, right, e) }
	return r.order(ctx, t, owner.Call{Op: owner.OpGiveBack, Back: e}, giveBack)
}

// giveBackHere gives n's units back without the owner of t's key.
func (r *Router) giveBackHere(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	err := r.shared.GiveBack(ctx, t, n, sums)
	r.Changed(t.Key)
	r.tell(ctx, t)
	return err
}

// giveBackBy gives back or confirms e's units by right, which it leaves, and then tells of it.
func (r *Router) giveBackBy(ctx context.Context, t *demand.Target, right owner.Right, e *count.Entry) error {
	err := r.giveBackUnder(ctx, t, right, e)
	right.Leave()
	if !errors.Is(err, owner.ErrRefused) {
		r.tell(ctx, t)
	}
	return err
}

func (r *Router) giveBackUnder(ctx context.Context, t *demand.Target, right owner.Right, e *count.Entry) error {
	if right.Owned() {
		switch err := r.shared.Holds(ctx, right); {
		case errors.Is(err, owner.ErrRightEnded):
			return fmt.Errorf("%w: %w", owner.ErrRefused, err)
		case err != nil:
			return &count.StoreError{Recorded: count.RecordedYes, Err: store.Unavailable(err)}
		}
	}
	return storeError(r.shared.GiveBackBy(ctx, t, right, e))
}

// tell tells the other instances that units of t were given back, if they know anything that this changes.
func (r *Router) tell(ctx context.Context, t *demand.Target) {
	if r.set.GivenBack != nil && !t.Plan.TakesBack {
		r.set.GivenBack(ctx, t)
	}
}

// EndHold is GiveBack for held units. The caller's claim makes sure that it happens once.
func (r *Router) EndHold(
	ctx context.Context, t *demand.Target, n *count.Entry, sums bool, _ store.Instant, _ store.Key, _ time.Duration,
) error {
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
	of := demand.Target{Plan: t.Plan, Key: t.Key}
	settle := func(right owner.Right) error { return r.settleBy(ctx, &of, right, n) }
	return r.order(ctx, &of, owner.Call{Op: owner.OpSettle, Back: n}, settle)
}

// settleBy makes n's held event permanent by right, which it leaves. A next owner of the key may have read it after the end
// of the hold, unless right still holds after that.
func (r *Router) settleBy(ctx context.Context, t *demand.Target, right owner.Right, n *count.Entry) error {
	defer right.Leave()
	if err := right.Note(t.Key, t.Plan.Life); err != nil {
		return fmt.Errorf("%w: %w", owner.ErrRefused, err)
	}
	if err := r.shared.SettleBy(ctx, t, right, n); err != nil {
		return storeError(err)
	}
	return verify(ctx, right)
}

// Reset removes all that is counted for t, and makes its owner drop it from memory. The error is a StoreError.
func (r *Router) Reset(ctx context.Context, t *demand.Target) error {
	defer r.Changed(t.Key)
	return storeError(r.order(ctx, t, owner.Call{Op: owner.OpReset}, func(right owner.Right) error { return r.resetBy(ctx, t, right) }))
}

// resetBy resets t by right, which it leaves. A next owner of the key may have read it before the reset, unless right
// still holds after that.
func (r *Router) resetBy(ctx context.Context, t *demand.Target, right owner.Right) error {
	defer right.Leave()
	if t.Plan.ByCell {
		return r.shared.ResetBy(ctx, t, right)
	}
	if err := right.Note(t.Key, t.Plan.Life); err != nil { // else the key would be new, and its units dated before the reset
		return fmt.Errorf("%w: %w", owner.ErrRefused, err)
	}
	if err := r.shared.ResetBy(ctx, t, right); err != nil {
		return err
	}
	return verify(ctx, right)
}

// storeError returns err, after which it may be unknown what was done, as a StoreError; nil for nil.
func storeError(err error) error {
	switch failed := (*count.StoreError)(nil); {
	case err == nil, errors.As(err, &failed):
		return err
	case errors.Is(err, store.ErrNotStored):
		return &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
	}
	return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Unavailable(err)}
}
