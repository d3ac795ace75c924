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

// HalfDone makes of failed an error that says what became of all charges: where some
// count and some don't, as when a record of several fails half way, nobody can tell by
// one word but "unknown".
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

// decideSeveral decides those of charges that count at all and are not blocked. Its error says that all are to be
// decided anew: none counts.
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
		case demand.TooEarly(c.Err): // nobody failed: it is to be decided under another id
			c.Decision = c.Plan.Unasked()
		case c.Err != nil:
			c.Decision, c.Err = j.onStoreError(ctx, c, c.Err)
		default:
			c.Op = charges[i].Op // who was asked in vain is over its own limit all the same
			j.follow(ctx, c, began)
		}
		c.Op = charges[i].Op
		charges[i] = *c
	}
	return nil
}

// askInVain asks for charges of a call that a block on another one denies: nothing of
// them is counted, except where denied attempts are.
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

// anew returns the error of charges of which one is to be decided anew, so that all are. Its Recorded is unknown,
// and they are not, if one of them may count. Nil: none is.
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
