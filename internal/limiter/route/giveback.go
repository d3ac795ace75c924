package route

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// giveBackByOwner makes the owner of t's key give back or confirm the units of n, the entry of a claimed receipt. It
// has an effect once, so after an error it may be repeated.
func (r *Router) giveBackByOwner(ctx context.Context, t *demand.Target, n *count.Entry) error {
	return r.order(ctx, t, owner.Call{Op: owner.OpGiveBack, Back: n}, func(right owner.Right) error { return r.giveBackBy(ctx, t, right, n) })
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
	t := demand.Target{Plan: p, Key: call.Key}
	if !t.Plan.TakesBack || call.Back == nil {
		right.Leave()
		return owner.ErrRefused
	}
	a.Recorded = count.RecordedNo
	return r.giveBackBy(ctx, &t, right, call.Back)
}
