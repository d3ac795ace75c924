package counted

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reset removes all that is counted for t. The error is a StoreError.
func (s *Decider) Reset(ctx context.Context, t *demand.Target) error {
	if len(t.Plan.Parts) == 0 {
		return s.resetPart(ctx, t)
	}
	for _, p := range t.Plan.Parts {
		part := t.As(p)
		if err := s.resetPart(ctx, &part); err != nil {
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
	return nil
}

func (s *Decider) resetPart(ctx context.Context, t *demand.Target) error {
	if t.Plan.Cell {
		return s.serial.Reset(ctx, t)
	}
	return s.counted.reset(ctx, t)
}

// reset removes all that is counted for t, at an instant that is later than all units written before, by any instance's
// clock, and than those dated after an earlier reset.
func (c *counted) reset(ctx context.Context, t *demand.Target) error {
	now, err := c.opts.Timing.Checked()
	if err != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	q := t.Plan.Query(t.Key, now, 1, nil)
	state, _, err := c.read(ctx, t, &q)
	if err != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	at := max(now.Add(2*c.opts.ClockTolerance), state.Reset+1)
	for _, key := range append([]store.Key{t.Key}, t.Old...) {
		w := &store.Write{
			Key: key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites,
			Counts: t.Plan.Counters && !t.Plan.Tally, Tally: t.Plan.Tally, Span: t.Plan.Span,
			Reset: at, ResetTTL: t.Plan.ResetTTL,
		}
		if err := c.store.Write(ctx, w); err != nil {
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
	c.denials.Forget(t.Key)
	c.learn(t.Key, at) // units counted from now on are dated after the reset
	return nil
}
