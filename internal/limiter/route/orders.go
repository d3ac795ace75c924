package route

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Resets and refunds change what is counted, and decide nothing. The key's owner does them, so that it knows what it has
// in memory.

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
			failed := (*count.StoreError)(nil)
			unreached = errors.Is(err, store.ErrNotStored) && !errors.As(err, &failed)
		}
		if !unreached && !errors.Is(err, owner.ErrRefused) {
			return err
		}
		if late := clock.Pause(ctx, owner.Pause); late != nil {
			return fmt.Errorf("%w: the owner of the key can't be reached: %w: %w", store.ErrNotStored, err, store.Unavailable(late))
		}
	}
}

// Reset removes all that is counted for t, and makes its owner drop it from memory. The error is a StoreError.
func (r *Router) Reset(ctx context.Context, t *demand.Target) error {
	if r.owners == nil || len(t.Plan.Parts) > 0 {
		return r.shared.Reset(ctx, t)
	}
	return storeError(r.order(ctx, t, owner.Call{Op: owner.OpReset}, func(right owner.Right) error { return r.resetBy(ctx, t, right) }))
}

// resetBy resets t by right, which it leaves. A next owner of the key may have read it before the reset, unless right
// still holds after that.
func (r *Router) resetBy(ctx context.Context, t *demand.Target, right owner.Right) error {
	defer right.Leave()
	if !t.Plan.CountsOutsideCells() {
		return r.shared.ResetBy(ctx, t, right)
	}
	if err := right.Note(t.Key, t.Plan.Life()); err != nil { // else the key would be new, and its units dated before the reset
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
