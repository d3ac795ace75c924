package judge

import (
	"context"
	"errors"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// DecideAll decides charges, all or none of them, and fills in their decisions. The
// error is that of the first whose policy denies because the store failed.
func (j *Judge) DecideAll(ctx context.Context, charges []demand.Charge) error {
	if len(charges) == 1 {
		if j.Decide(ctx, &charges[0]); demand.BeginsAnew(charges[0].Err) {
			return charges[0].Err
		}
	} else if err := j.decideSeveral(ctx, charges); err != nil {
		return err
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

// HalfDone returns failed as an error that holds for all charges. If some count and some don't, as when a record of
// several fails half way, only "unknown" is true of all.
func HalfDone(charges []demand.Charge, failed error) error {
	if len(charges) == 1 || failed == nil {
		return failed
	}
	var store *count.StoreError
	if !errors.As(failed, &store) {
		return failed
	}
	for i := range charges {
		if c := &charges[i]; c.Plan.Mode != policy.ModeOff && c.Decision.Recorded != store.Recorded {
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Err}
		}
	}
	return failed
}

// decideSeveral decides those of charges that are neither off nor decided already. After an error, all must be decided
// anew: none counts.
func (j *Judge) decideSeveral(ctx context.Context, charges []demand.Charge) error {
	asked, at := make([]demand.Charge, 0, len(charges)), make([]int, 0, len(charges))
	ask, began := j.Decider.DecideAll, j.Settings.Timing.Instant()
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Plan.Mode == policy.ModeOff:
			c.Decision = c.Plan.Unasked()
		case c.Told || j.DecideUnasked(c) || j.recallDenial(c):
			if !c.Decision.Stands() {
				ask = j.askInVain
			}
		default:
			asked, at = append(asked, *c), append(at, i)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	ask(ctx, asked)
	if err := anew(asked); demand.BeginsAnew(err) {
		return err
	} else if err != nil {
		for i := range asked {
			asked[i].Err = err
		}
	}
	for k, i := range at {
		c := &asked[k]
		switch {
		case demand.TooEarly(c.Err): // no failure: it must be decided under another id
			c.Decision = c.Plan.Unasked()
		case c.Err != nil:
			c.Decision, c.Err = j.onStoreError(ctx, c, c.Err)
		default:
			c.Op = charges[i].Op // a charge of a denied call may be over its own limit as well
			j.follow(ctx, c, began)
		}
		c.Op = charges[i].Op
		charges[i] = *c
	}
	return nil
}

// askInVain decides charges of a call that is denied already, by a block of another charge. It counts none of them,
// unless denied attempts count.
func (j *Judge) askInVain(ctx context.Context, charges []demand.Charge) {
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

// anew returns an error if one of charges must be decided anew, so that all must. If another one may count, the error's
// Recorded is unknown, and they are not decided anew. It returns nil if none must.
func anew(charges []demand.Charge) error {
	if !slices.ContainsFunc(charges, func(c demand.Charge) bool { return demand.BeginsAnew(c.Err) }) {
		return nil
	}
	failed := &count.StoreError{Recorded: count.RecordedNo, Err: demand.ErrSuperseded}
	for i := range charges {
		if charges[i].Err == nil && charges[i].Decision.Recorded != count.RecordedNo && charges[i].Decision.Recorded != "" {
			failed.Recorded = count.RecordedUnknown
		}
	}
	return failed
}
