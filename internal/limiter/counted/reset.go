package counted

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// ResetUnder removes all units of t's key under term, while no batch of the key is in progress. It drops the key from memory
// before it writes, because after a failure the store may or may not have the reset. The error is a StoreError.
func (s *Decider) ResetUnder(ctx context.Context, t *demand.Target, term owner.Term) error {
	return s.alone(ctx, t.Key, func(ctx context.Context) error {
		if err := s.counted.behind.writeKey(ctx, t.Key); err != nil {
			return &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
		known := s.counted.owned.lookup(t, term)
		s.counted.owned.change(t.Key)
		if t.Plan.Cell {
			return s.serial.Reset(ctx, t)
		}
		return s.counted.reset(ctx, t, known)
	})
}

// reset removes all units of t's keys. known is the state that memory had of t, nil if it had none. The reset's instant is
// later than those of all units written before, by any instance's clock, and than those dated after an earlier reset.
func (c *counted) reset(ctx context.Context, t *demand.Target, known *keyState) error {
	now, err := c.opts.Timing.Checked()
	if err != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	var state store.State
	if known != nil {
		state.Reset = known.reset
	} else {
		q := t.Plan.Query(t.Key, now, 1, nil)
		if state, _, err = c.read(ctx, t, &q); err != nil {
			return &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
	}
	at := max(now.Add(2*c.opts.ClockTolerance), state.Reset+1)
	for _, key := range append([]store.Key{t.Key}, t.OldKeys...) {
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
	c.noteReset(t.Key, at) // so further units are dated after the reset
	return nil
}
