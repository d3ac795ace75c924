package route

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// giveBackByOwner makes the owner of t's key give back or confirm the units of n, the entry of a claimed receipt. It
// has an effect once, so after an error it may be repeated. It reports whether an owner was asked: if not, the owner
// has another policy.
func (r *Router) giveBackByOwner(ctx context.Context, t *demand.Target, n *count.Entry) (asked bool, err error) {
	for refused := 0; refused < maxRefused; {
		place, err := r.owners.Place(ctx, t.Key)
		if err != nil {
			return true, err
		}
		if place.Right != nil {
			return true, r.giveBackBy(ctx, t, place.Right, n)
		}
		var a owner.Answer
		err = place.Owner.Decide(ctx, &owner.Call{
			Policy: t.Plan.Name, Print: t.Plan.Print, Version: t.Plan.Version, Key: t.Key, Op: owner.OpGiveBack, View: place.View, Back: n,
		}, &a)
		switch {
		case errors.Is(err, owner.ErrRefused):
			r.catchesUp(ctx, err)
			refused++
		case err == nil, !errors.Is(err, store.ErrNotStored):
			return true, err
		}
		if late := clock.Pause(ctx, owner.Pause); late != nil {
			return true, errors.Join(err, store.Unavailable(late))
		}
	}
	return false, nil
}

// giveBackBy gives back or confirms n's units by right, which it leaves.
func (r *Router) giveBackBy(ctx context.Context, t *demand.Target, right owner.Right, n *count.Entry) error {
	defer right.Leave()
	if right.Owned() {
		if err := r.shared.Holds(ctx, right); err != nil {
			return store.Unavailable(err)
		}
	}
	return r.shared.GiveBackBy(ctx, t, right, n)
}

// giveBackForPeer is giveBackBy for another instance. It fills in a.
func (r *Router) giveBackForPeer(ctx context.Context, call *owner.Call, p *demand.Plan, right owner.Right, a *owner.Answer) error {
	t := demand.Target{Plan: p.At(call.Key), Key: call.Key}
	if !t.Plan.TakesBack || call.Back == nil {
		right.Leave()
		return owner.ErrRefused
	}
	a.Recorded = count.RecordedNo
	return r.giveBackBy(ctx, &t, right, call.Back)
}
