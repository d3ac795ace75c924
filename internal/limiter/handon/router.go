package handon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Router decides charges by the owners of their keys: here, if this instance has the right to, or else by handing them
// on. A nil one has no owners to go by.
type Router struct {
	owners owner.Owners
	shared *counted.Decider
	told   denied.Told // what owners denied
	ids    *store.EventIDs
	set    *demand.Settings
}

// New returns one that goes by owners.
func New(owners owner.Owners, shared *counted.Decider, ids *store.EventIDs, set *demand.Settings) *Router {
	return &Router{owners: owners, shared: shared, told: denied.Told{Opts: set}, ids: ids, set: set}
}

// ToldDenied decides c, and reports true, if what its owner told does.
func (r *Router) ToldDenied(c *demand.Charge) bool {
	return r != nil && c.IsPlain() && r.told.Answer(c)
}

// Changed ends what owners told of key.
func (r *Router) Changed(key store.Key) {
	if r != nil {
		r.told.Changes.Note(&key)
	}
}

// maxRefused is how many times an owner may refuse a call before whoever asks counts it as a guest: it
// has another policy then, as instances do that are given another file one after the other.
const maxRefused = 3

// Decide has c decided by who owns its key.
func (r *Router) Decide(ctx context.Context, c *demand.Charge) {
	if r.told.Answer(c) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.set.StoreTimeout)
	defer cancel()
	for refused := 0; refused < maxRefused; {
		place, err := r.owners.Place(ctx, c.Key)
		if err != nil {
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
			return
		}
		outcome := asked
		if c.Owner = place.Owner; place.Right != nil {
			r.decideBy(ctx, c, place.Right)
		} else {
			outcome = r.askOwner(ctx, c, &place)
		}
		switch outcome {
		case asked:
			if !r.mayAskAgain(ctx, c) {
				return
			}
			c.Err = nil
			continue
		case refusedThat:
			refused++
		}
		if err := clock.Pause(ctx, owner.Pause); err != nil {
			err = fmt.Errorf("%w: the owner of the key can't be reached: %w", store.ErrUnavailable, err)
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: err}
			return
		}
	}
	now, err := r.set.Timing.Checked()
	if err != nil {
		c.Err = err
		return
	}
	c.Owner = nil
	r.DecideAsGuest(ctx, c, now)
}

// What comes of asking an owner.
const (
	asked       = iota // it may have decided
	refusedThat        // it surely did not: it has another policy, or the key no longer
	unreached          // it surely did not
)

// askOwner has another instance decide c.
func (r *Router) askOwner(ctx context.Context, c *demand.Charge, place *owner.Place) (outcome int) {
	call := owner.Call{
		Policy: c.Plan.Name, Print: c.Plan.Print, Key: c.Key, Old: c.Old, Op: c.Op, Cost: c.Cost, View: place.View,
		Prepare: c.Prepare, AtOnce: c.AtOnce,
	}
	var a owner.Answer
	changes, began := r.told.Changes.Of(&c.Key), time.Now()
	err := place.Owner.Decide(ctx, &call, &a)
	switch failed := (*count.StoreError)(nil); {
	case err == nil:
		if c.Err = fill(&c.Decision, &a, c.Plan); c.Err == nil {
			r.told.Put(c, &a, began, changes)
		}
	case errors.Is(err, owner.ErrRefused):
		return refusedThat
	case errors.As(err, &failed):
		c.Err = err
	case errors.Is(err, store.ErrNotStored):
		return unreached
	case c.Op == count.OpCheck:
		c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: err}
	default:
		c.Err = &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	return asked
}

// decideBy decides c by right, which it leaves, and admits nothing unless that still holds.
func (r *Router) decideBy(ctx context.Context, c *demand.Charge, right owner.Right) {
	defer right.Leave()
	now, err := r.set.Timing.Checked()
	if err != nil {
		c.Err = err
		return
	}
	c.Right = right
	later := c.Plan.Behind && right.Owned() // what is admitted is verified and written
	if later && c.Op != count.OpCheck {
		if err := r.shared.Holds(ctx, right); err != nil {
			c.Err = &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
			return
		}
	}
	r.shared.Decide(ctx, c, now)
	if c.Err == nil && c.Decision.Recorded == count.RecordedYes && !c.Plan.Cell && !later {
		c.Err = verify(ctx, right)
	}
}

// verify asks until it is known whether right still holds. The error is a StoreError.
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

// fill makes d what a says under p.
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
	d.Entry = count.Entry{ID: a.Entry.ID, At: a.Entry.At, Epoch: a.Entry.Epoch, Cost: a.Entry.Cost}
	return nil
}

// steadyFor returns for how long a denial of t, which right decided, stays as it is.
func (r *Router) steadyFor(t *demand.Target, right owner.Right) time.Duration {
	now, err := r.set.Timing.Checked()
	if err != nil || !right.Owned() || t.Plan.Cell {
		return 0
	}
	return r.shared.SteadyFor(t, right, now)
}

// DecideForPeer decides what another instance handed on, by the plan in force here, and fills in a.
func (r *Router) DecideForPeer(ctx context.Context, call *owner.Call, p *demand.Plan, a *owner.Answer) error {
	switch call.Op {
	case owner.OpCommit: // by whatever right it was prepared
		a.Recorded = count.RecordedYes
		r.shared.Commit(call.Key, call.Prepare)
		return nil
	case owner.OpAbort:
		a.Recorded = count.RecordedNo
		return r.shared.Abort(ctx, call.Key, call.Prepare)
	}
	if call.Op != owner.OpOpen && (p == nil || p.Print != call.Print || len(p.Parts) > 0 || len(call.Old) != len(p.Keys)-1) {
		return owner.ErrRefused
	}
	right, err := r.owners.PlaceFor(ctx, call.Key, call.View)
	if err != nil {
		return err
	}
	if call.Op == owner.OpOpen {
		defer right.Leave()
		a.Recorded = count.RecordedNo
		return r.open(ctx, right, call.Key, time.Duration(call.Cost)*time.Millisecond, call.Keep)
	}
	c := demand.Charge{Target: demand.Target{Plan: p, Key: call.Key, Old: call.Old}, Op: call.Op, Cost: call.Cost}
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
	a.WouldAllow, a.Remembered, a.Recorded = d.WouldAllow, d.Remembered, d.Recorded
	a.Entry = owner.Entry{ID: d.Entry.ID, At: d.Entry.At, Epoch: d.Entry.Epoch, Cost: d.Entry.Cost}
	return nil
}
