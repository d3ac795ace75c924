package limiter

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reset forgets what was counted for id under policy, for every instance as soon
// as it returns nil; not what was counted for parts of it under others. Blocks of id, and what instances count for themselves, end on
// this instance then and on others within a second.
func (e *Engine) Reset(ctx context.Context, policy string, id keys.Identifier) error {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return err
	}
	if _, err := e.instant(); err != nil { // before anything is forgotten here
		return &StoreError{Recorded: count.RecordedNo, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	t := p.of(id)
	if err := e.forget(ctx, &t); err != nil {
		return err
	}
	return e.tellReset(ctx, &t)
}

// forget forgets what is counted for t. The error is a StoreError.
func (e *Engine) forget(ctx context.Context, t *target) error {
	if e.local != nil {
		local := t.as(t.plan.local)
		if err := resetStill(ctx, e.local.store, &local, e.now()); err != nil {
			return &StoreError{Recorded: count.RecordedNo, Err: err}
		}
	}
	if e.exclusive != nil {
		if err := resetStill(ctx, e.exclusive.store, t, e.now()); err != nil {
			return &StoreError{Recorded: count.RecordedNo, Err: err}
		}
		e.passMilli()
		return nil
	}
	return e.resetShared(ctx, t)
}

// resetShared forgets what is counted for t in a store that instances share, and has its owner
// remember nothing of it.
func (e *Engine) resetShared(ctx context.Context, t *target) error {
	if !t.plan.countsOutsideCells() {
		return e.shared.reset(ctx, t)
	}
	g, err := e.openKeys(ctx, t)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := e.shared.reset(ctx, t); err != nil {
		return err
	}
	return g.verify(ctx) // else the next owner may have read the key before
}

// passMilli waits until the millisecond is over that a reset is dated: what comes within it is
// dated later, and would be told to wait for longer than its window.
func (e *Engine) passMilli() {
	now := e.opts.timing.Time()
	time.Sleep(now.Truncate(time.Millisecond).Add(time.Millisecond).Sub(now))
}

// resetStill forgets all that is counted for t in a store that holds keys still.
func resetStill(ctx context.Context, in store.Exclusive, t *target, now store.Instant) error {
	queries := []store.Query{t.plan.Query(t.key, now, 1, nil)}
	for _, key := range t.old {
		older := queries[0]
		older.Key = key
		queries = append(queries, older)
	}
	return in.UpdateAll(ctx, queries, func(states []store.State, writes []store.Write) {
		at := now
		for i := range states {
			if s := &states[i]; t.plan.IsAhead(s, now) { // by a clock that was set back
				writes[i].Present, s.Reset = now, min(s.Reset, now-1)
			}
			at = max(at, states[i].Reset+1)
		}
		for i := range writes {
			w := &writes[i]
			w.Reset, w.ResetTTL = at, t.plan.resetTTL
			w.Logs, w.Counts = t.plan.logWrites, t.plan.Counters
			if t.plan.Cell {
				w.Cell = &store.CellWrite{If: states[i].Cell.Version}
			}
		}
	})
}

// reset forgets all that is counted for t. The error is a StoreError.
func (s *shared) reset(ctx context.Context, t *target) error {
	if len(t.plan.parts) == 0 {
		return s.resetPart(ctx, t)
	}
	for _, p := range t.plan.parts {
		part := t.as(p)
		if err := s.resetPart(ctx, &part); err != nil {
			return &StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
	return nil
}

func (s *shared) resetPart(ctx context.Context, t *target) error {
	if t.plan.Cell {
		return s.serial.reset(ctx, t)
	}
	return s.counted.reset(ctx, t)
}

// reset forgets all that is counted for t: as of an instant that is later than
// whatever was written before, by any instance's clock, and than what was dated after
// an earlier reset.
func (c *counted) reset(ctx context.Context, t *target) error {
	now, err := c.opts.timing.Checked()
	if err != nil {
		return &StoreError{Recorded: count.RecordedNo, Err: err}
	}
	q := t.plan.Query(t.key, now, 1, nil)
	state, _, err := c.read(ctx, t, &q)
	if err != nil {
		return &StoreError{Recorded: count.RecordedNo, Err: err}
	}
	at := max(now.Add(2*c.opts.ClockTolerance), state.Reset+1)
	for _, key := range append([]store.Key{t.key}, t.old...) {
		w := &store.Write{
			Key: key, Level: t.plan.Consistency.Write, Logs: t.plan.logWrites,
			Counts: t.plan.Counters && !t.plan.Tally, Tally: t.plan.Tally, Span: t.plan.Span,
			Reset: at, ResetTTL: t.plan.resetTTL,
		}
		if err := c.store.Write(ctx, w); err != nil {
			return &StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
	c.denials.forget(t.key)
	c.learn(t.key, at) // what is counted from now on is dated after it
	return nil
}
