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

// Calls that need several steps and that owners can't decide (see several.go) are counted as without owners: by writing
// and then counting. Before, each key is opened, so that its owner does not decide by memory meanwhile: for openFor the
// owner keeps nothing of the key in memory, and counts like all instances. The units are admitted only if this
// instance's right as a guest still holds in the end: it ends before any key gets another owner.

// guest has the rights to count for keys that are open.
type guest struct {
	rights []owner.Right
}

// openKeys opens the keys of targets. The error is a StoreError that says that nothing was counted.
func (r *Router) openKeys(ctx context.Context, targets ...*demand.Target) (*guest, error) {
	g := new(guest)
	if r.owners == nil {
		return g, nil
	}
	for {
		again, err := r.openAll(ctx, g, targets)
		if err == nil {
			return g, nil
		}
		g.leave() // members may wait for this guest, and any key may get another owner now: all are opened anew
		if again && clock.Pause(ctx, owner.Pause) == nil {
			continue
		}
		return nil, &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
	}
}

// openAll opens the keys of targets. After an error, again reports whether another attempt may succeed.
func (r *Router) openAll(ctx context.Context, g *guest, targets []*demand.Target) (again bool, err error) {
	for _, t := range targets {
		if again, err = r.openKey(ctx, g, t.Key, t.Plan.Life()); err != nil {
			return again, err
		}
	}
	return false, nil
}

func (r *Router) openKey(ctx context.Context, g *guest, key store.Key, life time.Duration) (again bool, err error) {
	mine, err := r.owners.Guest(ctx)
	if err != nil {
		return false, err
	}
	g.rights = append(g.rights, mine) // before the owner is asked: the right ends before the owner changes
	place, err := r.owners.Place(ctx, key)
	if err != nil {
		return false, err
	}
	if place.Right != nil {
		g.rights = append(g.rights, place.Right)
		if !place.Right.Owned() {
			return false, nil
		}
		return false, r.open(ctx, place.Right, key, r.set.StoreTimeout, life)
	}
	var a owner.Answer
	call := owner.Call{Op: owner.OpOpen, Key: key, View: place.View, Cost: r.set.StoreTimeout.Milliseconds(), Keep: life}
	err = place.Owner.Decide(ctx, &call, &a)
	switch {
	case errors.Is(err, owner.ErrRefused):
		return true, fmt.Errorf("%w: the owner of the key changes: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrNotStored):
		return true, err
	}
	return false, err
}

// open makes the present and the next owner of key, which right is for, keep nothing of it in memory.
func (r *Router) open(ctx context.Context, right owner.Right, key store.Key, theirs, life time.Duration) error {
	if err := right.Note(key, life); err != nil {
		return fmt.Errorf("%w: %w", owner.ErrRefused, err)
	}
	return r.shared.Open(ctx, key, theirs)
}

// verify returns nil if all units may be admitted. The error is a StoreError.
func (g *guest) verify(ctx context.Context) error {
	for _, right := range g.rights {
		if err := verify(ctx, right); err != nil {
			return err
		}
	}
	return nil
}

func (g *guest) leave() {
	for _, right := range g.rights {
		right.Leave()
	}
	g.rights = nil
}

// asGuest decides charges, which their owners can't decide by memory, by do.
func (r *Router) asGuest(ctx context.Context, charges []demand.Charge, do func(context.Context)) {
	if r.owners == nil {
		do(ctx)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.set.StoreTimeout)
	defer cancel()
	var targets []*demand.Target
	for i := range charges {
		if c := &charges[i]; c.Plan.CountsOutsideCells() && c.Op != count.OpCheck {
			targets = append(targets, &c.Target)
		}
	}
	g, err := r.openKeys(ctx, targets...)
	if err != nil {
		failCharges(charges, err)
		return
	}
	defer g.leave()
	do(ctx)
	if err := g.verify(ctx); err != nil {
		for i := range charges {
			if c := &charges[i]; c.Err == nil && c.Decision.Recorded == count.RecordedYes && c.Plan.CountsOutsideCells() {
				c.Err = err
			}
		}
	}
}

// decideAsGuest decides c, which its owner can't decide by memory.
func (r *Router) decideAsGuest(ctx context.Context, c *demand.Charge, now store.Instant) {
	one := []demand.Charge{*c}
	r.asGuest(ctx, one, func(ctx context.Context) { r.shared.Decide(ctx, &one[0], now) })
	*c = one[0]
}

// failCharges fails all charges with err.
func failCharges(charges []demand.Charge, err error) {
	for i := range charges {
		charges[i].Err = err
	}
}
