package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// What takes more than one step, and does not suit owners (see several.go), counts as it would without: by
// writing first and counting then. So that owners don't go by memory meanwhile, each key is opened
// before: its owner remembers nothing of it for openFor, in which it counts like everybody. What
// is done then is admitted only if this instance's right to be a guest still holds in the end:
// that is over before any key gets another owner.

// guest is the right to do something for keys that are open.
type guest struct {
	rights []Right
}

// openKeys opens the keys of targets. The error is a StoreError: nothing was counted.
func (e *Engine) openKeys(ctx context.Context, targets ...*target) (*guest, error) {
	g := new(guest)
	if e.opts.Owners == nil {
		return g, nil
	}
	for {
		again, err := e.openAll(ctx, g, targets)
		if err == nil {
			return g, nil
		}
		g.leave() // members may wait for it, and any of the keys may get another owner now: all are opened anew
		if again && pause(ctx, ownerPause) == nil {
			continue
		}
		return nil, &StoreError{Recorded: count.RecordedNo, Err: unavailable(err)}
	}
}

// openAll opens the keys of targets, and reports whether it can be tried again where it can't.
func (e *Engine) openAll(ctx context.Context, g *guest, targets []*target) (again bool, err error) {
	for _, t := range targets {
		if again, err = e.openKey(ctx, g, t.key, t.plan.life()); err != nil {
			return again, err
		}
	}
	return false, nil
}

func (e *Engine) openKey(ctx context.Context, g *guest, key store.Key, life time.Duration) (again bool, err error) {
	mine, err := e.opts.Owners.Guest(ctx)
	if err != nil {
		return false, err
	}
	g.rights = append(g.rights, mine) // before the owner is asked: it ends before the owner changes
	place, err := e.opts.Owners.Place(ctx, key)
	if err != nil {
		return false, err
	}
	if place.Right != nil {
		g.rights = append(g.rights, place.Right)
		if !place.Right.Owned() {
			return false, nil
		}
		return false, e.open(ctx, place.Right, key, e.opts.StoreTimeout, life)
	}
	var a PeerAnswer
	call := PeerCall{Op: opOpen, Key: key, View: place.View, Cost: e.opts.StoreTimeout.Milliseconds(), Keep: life}
	err = place.Owner.Decide(ctx, &call, &a)
	switch {
	case errors.Is(err, ErrRefused):
		return true, fmt.Errorf("%w: the owner of the key changes: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrNotStored):
		return true, err
	}
	return false, err
}

// open has nothing remembered of key, which right is for, by whoever owns it now or next.
func (e *Engine) open(ctx context.Context, right Right, key store.Key, theirs, life time.Duration) error {
	if err := right.Note(key, life); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return e.shared.open(ctx, key, theirs)
}

// verify returns nil if all that was done may be admitted. The error is a StoreError.
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

// asGuest decides charges, which do not suit their owners' memory, by do.
func (e *Engine) asGuest(ctx context.Context, charges []charge, do func(context.Context)) {
	if e.opts.Owners == nil {
		do(ctx)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	var targets []*target
	for i := range charges {
		if c := &charges[i]; c.plan.countsOutsideCells() && c.op != count.OpCheck {
			targets = append(targets, &c.target)
		}
	}
	g, err := e.openKeys(ctx, targets...)
	if err != nil {
		failCharges(charges, err)
		return
	}
	defer g.leave()
	do(ctx)
	if err := g.verify(ctx); err != nil {
		for i := range charges {
			if c := &charges[i]; c.err == nil && c.decision.Recorded == count.RecordedYes && c.plan.countsOutsideCells() {
				c.err = err
			}
		}
	}
}

// decideAsGuest decides c, which does not suit its owner's memory.
func (e *Engine) decideAsGuest(ctx context.Context, c *charge, now store.Instant) {
	one := []charge{*c}
	e.asGuest(ctx, one, func(ctx context.Context) { e.shared.decide(ctx, &one[0], now) })
	*c = one[0]
}

// countsOutsideCells reports whether anything of p is counted by writing first and counting then, or in memory.
func (p *plan) countsOutsideCells() bool {
	return p.behind || !p.Cell || len(p.parts) > 0
}
