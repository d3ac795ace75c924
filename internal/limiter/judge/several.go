package judge

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// DecideAll decides charges, all or none of them, and fills in their decisions. The error is that of the first charge whose
// policy denies because the store failed.
func (j *Judge) DecideAll(ctx context.Context, charges []demand.Charge) error {
	if len(charges) == 1 {
		j.Decide(ctx, &charges[0])
	} else {
		j.decideSeveral(ctx, charges)
	}
	j.Tell(charges)
	var failed error
	for i := range charges {
		if failed == nil {
			failed = charges[i].Err
		}
	}
	return HalfDone(charges, failed)
}

// HalfDone returns failed as an error that is true of all charges. If some of them count and some don't, as when a record
// of several demands fails half way, its Recorded is unknown.
func HalfDone(charges []demand.Charge, failed error) error {
	if len(charges) == 1 || failed == nil {
		return failed
	}
	store, ok := errors.AsType[*count.StoreError](failed)
	if !ok {
		return failed
	}
	for i := range charges {
		if c := &charges[i]; c.Plan.Mode != policy.ModeOff && c.Decision.Recorded != store.Recorded {
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Err}
		}
	}
	return failed
}

// decideSeveral decides those of charges that are neither off nor decided already.
func (j *Judge) decideSeveral(ctx context.Context, charges []demand.Charge) {
	asked, at := make([]demand.Charge, 0, len(charges)), make([]int, 0, len(charges))
	ask, began := j.Decider.DecideAll, j.Settings.Timing.Instant()
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Plan.Mode == policy.ModeOff:
			c.Decision = c.Plan.Unasked()
		case c.Told || j.DecideUnasked(c) || j.recallDenial(c):
			if !c.Decision.Stands() {
				ask = j.decideDenied
			}
		default:
			asked, at = append(asked, *c), append(at, i)
		}
	}
	if len(asked) == 0 {
		return
	}
	ask(ctx, asked)
	for k, i := range at {
		c := &asked[k]
		switch {
		case demand.TooEarly(c.Err): // the store has not failed: c must be decided again under another ID
			c.Decision = c.Plan.Unasked()
		case c.Err != nil:
			c.Decision, c.Err = j.onStoreError(ctx, c, c.Err)
		default:
			c.Op = charges[i].Op // it may also be over its own limit, and is then blocked as a take
			j.follow(ctx, c, began)
		}
		c.Op = charges[i].Op
		charges[i] = *c
	}
}

// decideDenied decides charges of a call that another charge has denied without the counts. It counts only those whose
// policies count denied attempts.
func (j *Judge) decideDenied(ctx context.Context, charges []demand.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Op = c.OpIf(true); c.Op == count.OpCheck {
			c.Hold, c.ID = 0, store.EventID{}
		}
	}
	for _, op := range []count.Op{count.OpCheck, count.OpTake} {
		var alike []demand.Charge
		var at []int
		for i := range charges {
			if charges[i].Op == op {
				alike, at = append(alike, charges[i]), append(at, i)
			}
		}
		if len(alike) > 0 {
			j.Decider.DecideAll(ctx, alike)
		}
		for k, i := range at {
			charges[i] = alike[k]
		}
	}
}
