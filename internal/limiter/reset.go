package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/exclusive"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reset removes all units of id under policy. Once it returns nil, they count on no instance. Blocks of id and local counts
// have then ended on this instance, and end on others within a second. If policy is derived for known parts, Reset also
// removes the mark that id is known. It does not remove units of parts of id under other policies.
func (e *Engine) Reset(ctx context.Context, policy string, id keys.Identifier) error {
	return e.resets.reset(ctx, policy, id)
}

// resets resets keys, and acts on resets by other instances.
type resets struct {
	*teller
	plans *plans
	marks *once.Marks
	local *exclusive.Decider // decides for OnStoreErrorLocal; nil: there is none
}

func (r *resets) reset(ctx context.Context, policy string, id keys.Identifier) error {
	p, id, _, err := r.plans.planOf(policy, id)
	if err != nil {
		return err
	}
	if _, err := r.decider.Instant(); err != nil { // checked before local counts are removed
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, r.settings.StoreTimeout)
	defer cancel()
	t := p.Of(id)
	if err := r.forget(ctx, &t); err != nil {
		if failed, ok := errors.AsType[*count.StoreError](err); ok && failed.Recorded == count.RecordedUnknown {
			r.gaveBack(ctx, &t) // the reset may be stored: other instances may remember removed units
		}
		return err
	}
	if p.Marked {
		if err := r.marks.Forget(ctx, &t); err != nil {
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
	return r.tellReset(ctx, &t)
}

// forget removes all units of t, local counts included. The error is a StoreError.
func (r *resets) forget(ctx context.Context, t *demand.Target) error {
	if r.local != nil {
		local := t.As(t.Plan.Local)
		if err := r.local.Reset(ctx, &local); err != nil {
			return err
		}
	}
	if err := r.decider.Reset(ctx, t); err != nil {
		return err
	}
	if r.inMemory {
		r.awaitNextMilli()
	}
	return nil
}

// awaitNextMilli waits until the millisecond of a reset is over. Units within it would be dated after it, so a denial would
// have a wait longer than the window.
func (r *resets) awaitNextMilli() {
	now := r.settings.Timing.Time()
	time.Sleep(now.Truncate(time.Millisecond).Add(time.Millisecond).Sub(now))
}

// tellReset informs every instance that t was reset. The error is a StoreError.
func (r *resets) tellReset(ctx context.Context, t *demand.Target) error {
	if err := r.publish(ctx, store.ChangeReset, t); err != nil {
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: fmt.Errorf(
			"%w: the counts are forgotten, but other instances may block the identifier until they learn it: %w", store.ErrUnavailable, err)}
	}
	return nil
}

// heard acts on a reset that another instance made, or this one before it restarted.
func (r *resets) heard(ctx context.Context, c *store.Change) {
	at, now := r.resetBy(c), r.now()
	r.decider.Changed(c.Key)
	lifted := r.blocks.Lift(c.Key, at)
	if lifted.Mine && lifted.Ends > c.ID.Instant().Add(c.TTL) {
		// The instance that reset the key did not know of this block yet, so its news may end before those of the block. An
		// instance that starts must not find the news of the block alone.
		r.news.Announce(&store.Change{ID: r.ids.Next(now), Kind: store.ChangeReset, Key: c.Key, TTL: signals.LivesUntil(lifted.Ends, now)})
	}
	if r.local != nil {
		r.local.Forget(ctx, c.Key, at, max(c.TTL, time.Second))
	}
}
