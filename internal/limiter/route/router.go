package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Router decides charges by the owners of their keys: on this instance, if it has the right, or else by handing them
// on.
type Router struct {
	owners owner.Owners
	shared *counted.Decider
	ids    *store.EventIDs
	set    *demand.Settings
}

// New returns a Router that uses owners; nil: all instances decide for all keys.
func New(owners owner.Owners, shared *counted.Decider, ids *store.EventIDs, set *demand.Settings) *Router {
	if owners == nil {
		owners = everyone{}
	}
	return &Router{owners: owners, shared: shared, ids: ids, set: set}
}

// Instant returns the instant to decide at. It returns an error if this instance's clock is beyond the tolerance.
func (r *Router) Instant() (store.Instant, error) { return r.set.Timing.Checked() }

// Changed drops what is remembered of key.
func (r *Router) Changed(key store.Key) { r.shared.Changed(key) }

// LastReset returns the latest reset of key that this instance has seen; 0: none.
func (r *Router) LastReset(key store.Key) store.Instant { return r.shared.LastReset(key) }

// Run does the background work until ctx ends, and then finishes it.
func (r *Router) Run(ctx context.Context) { r.shared.Run(ctx) }

// Decide makes the owner of c's key decide c, by its clock, and fills in c's decision and error.
func (r *Router) Decide(ctx context.Context, c *demand.Charge) {
	if r.shared.Denials.Recall(c) {
		return
	}
	ctx, cancel := clock.Within(ctx, r.set.StoreTimeout)
	defer cancel()
	for {
		place, err := r.owners.Place(ctx, c.Key)
		if err != nil {
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
			return
		}
		asked := true
		if c.Owner = place.Owner; place.Right != nil {
			r.decideBy(ctx, c, place.Right)
		} else {
			asked = r.askOwner(ctx, c, &place)
		}
		if asked {
			if c.Err == nil || !r.mayAskAgain(ctx, c) {
				return
			}
			c.Err = nil
			continue
		}
		if err := clock.Pause(ctx, owner.Pause); err != nil {
			err = fmt.Errorf("%w: the owner of the key can't be reached: %w", store.ErrUnavailable, err)
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: err}
			return
		}
	}
}

// ask makes peer do what call says of t, and fills in a. Errors are those of Peer.Decide. peer gets the definition of t's
// policy only if it does not know it: instances mostly have the same.
func ask(ctx context.Context, peer owner.Peer, t *demand.Target, call *owner.Call, a *owner.Answer) error {
	call.Policy, call.Print, call.Key, call.Old = t.Plan.Name, t.Plan.Print, t.Key, t.Old
	err := peer.Decide(ctx, call, a)
	if errors.Is(err, owner.ErrUndefined) {
		call.Definition = t.Plan.Definition()
		err = peer.Decide(ctx, call, a)
	}
	return err
}

// askOwner asks the owner of c's key, another instance, to decide c. It returns false if it surely did not.
func (r *Router) askOwner(ctx context.Context, c *demand.Charge, place *owner.Place) (asked bool) {
	call := owner.Call{
		Op: c.Op, Cost: c.Cost, Hold: c.Hold, Limit: c.Plan.AskedLimit(), View: place.View, ID: c.ID,
		Prepare: c.Prepare, AtOnce: c.AtOnce,
	}
	var a owner.Answer
	mark, began := r.shared.Denials.Since(c.Key), time.Now()
	err := ask(ctx, place.Owner, &c.Target, &call, &a)
	switch failed := (*count.StoreError)(nil); {
	case err == nil:
		if c.Err = fill(&c.Decision, &a, c.Plan); c.Err == nil {
			r.shared.Denials.PutAnswer(c, &a, began, mark)
		}
	case errors.As(err, &failed), demand.TooEarly(err):
		c.Err = err
	case errors.Is(err, owner.ErrRefused), errors.Is(err, store.ErrNotStored):
		return false
	case c.Op == count.OpCheck:
		c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: err}
	default:
		c.Err = &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	return true
}

// decideBy decides c by right, which it leaves. It admits c only if right still holds after that.
func (r *Router) decideBy(ctx context.Context, c *demand.Charge, right owner.Right) {
	defer right.Leave()
	now, err := r.set.Timing.Checked()
	if err != nil {
		c.Err = err
		return
	}
	if c.ID != (store.EventID{}) && now.Sub(c.ID.Instant()) > r.set.StoreTimeout+r.set.Timing.Slack() {
		c.Err = &demand.DatedError{} // its asker has given up, and others may have removed it
		return
	}
	c.Right = right
	later := c.Plan.Behind && right.Owned() && c.Hold == 0 // admitted units are verified and written later
	if later && c.Op != count.OpCheck {
		if err := r.shared.Holds(ctx, right); err != nil {
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
			return
		}
	}
	r.shared.Decide(ctx, c, now)
	if c.Err == nil && c.Decision.Recorded == count.RecordedYes && !c.Plan.ByCell && !later {
		c.Err = verify(ctx, right)
	}
}

// verify repeats right.Verify until it is known whether right still holds. The error is a StoreError.
func verify(ctx context.Context, right owner.Right) error {
	for {
		err := right.Verify(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, owner.ErrRightEnded) || clock.Pause(ctx, owner.Pause) != nil:
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Unavailable(err)}
		}
	}
}

// fill sets d to the decision of a under p.
func fill(d *count.Decision, a *owner.Answer, p *demand.Plan) error {
	limits := p.Begin(d)
	if len(a.Verdicts) != len(limits) {
		err := fmt.Errorf("%w: a peer answered for %d limits of %d", store.ErrUnavailable, len(a.Verdicts), len(limits))
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	for i := range limits {
		limits[i].Verdict = a.Verdicts[i]
	}
	d.Conclude()
	d.Remembered, d.Recorded = a.Remembered, a.Recorded
	d.WouldAllow = a.WouldAllow
	d.Allowed = a.WouldAllow || p.Mode != policy.ModeEnforce
	d.Entry = a.Entry
	return nil
}

// steadyFor returns for how long a denial of t, decided by right, remains true.
func (r *Router) steadyFor(t *demand.Target, right owner.Right) time.Duration {
	now, err := r.set.Timing.Checked()
	if err != nil || !right.Owned() || t.Plan.Cell {
		return 0
	}
	return r.shared.SteadyFor(t, right, now)
}

// DecideForPeer decides a call that another instance handed on, by p, the plan that the call asks for, and fills in a.
func (r *Router) DecideForPeer(ctx context.Context, call *owner.Call, p *demand.Plan, a *owner.Answer) error {
	switch call.Op {
	case owner.OpCommit: // under any right, as it is prepared already
		a.Recorded = count.RecordedYes
		r.shared.Commit(call.Key, call.Prepare)
		return nil
	case owner.OpAbort:
		a.Recorded = count.RecordedNo
		return r.shared.Abort(ctx, call.Key, call.Prepare)
	}
	right, err := r.owners.PlaceFor(ctx, call.Key, call.View)
	if err != nil {
		return err
	}
	t := demand.Target{Plan: p, Key: call.Key, Old: call.Old}
	switch call.Op {
	case owner.OpReset:
		a.Recorded = count.RecordedNo
		return r.resetBy(ctx, &t, right)
	case owner.OpGiveBack:
		a.Recorded = count.RecordedNo
		return r.giveBackBy(ctx, &t, right, call.Back)
	case owner.OpSettle:
		a.Recorded = count.RecordedYes
		return r.settleBy(ctx, &t, right, call.Back)
	}
	c := demand.Charge{Target: t, Op: call.Op, Cost: call.Cost, Hold: call.Hold, ID: call.ID}
	c.Prepare, c.AtOnce = call.Prepare, call.AtOnce
	if r.decideBy(ctx, &c, right); c.Err != nil {
		return c.Err
	}
	d := &c.Decision
	if !d.WouldAllow {
		a.Steady = r.steadyFor(&c.Target, right)
	}
	for i := range d.Limits() {
		a.Verdicts = append(a.Verdicts, d.Limits()[i].Verdict)
	}
	a.WouldAllow, a.Remembered, a.Recorded, a.Entry = d.WouldAllow, d.Remembered, d.Recorded, d.Entry
	return nil
}

// everyone is Owners under which every instance decides for every key, and the right to do so.
type everyone struct{}

func (e everyone) Place(context.Context, store.Key) (owner.Place, error) {
	return owner.Place{Right: e}, nil
}

func (everyone) PlaceFor(context.Context, store.Key, int64) (owner.Right, error) {
	return nil, owner.ErrRefused
}

func (everyone) Owned() bool                         { return false }
func (everyone) Began() time.Time                    { return time.Time{} }
func (everyone) Verified() time.Time                 { return time.Time{} }
func (everyone) Verify(context.Context) error        { return nil }
func (everyone) IsNew(store.Key, time.Duration) bool { return false }
func (everyone) Note(store.Key, time.Duration) error { return nil }
func (everyone) Leave()                              {}
