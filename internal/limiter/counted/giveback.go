package counted

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// GiveBack removes n's units for t from the store: from logs, and from sums and cells only if sums is true.
func (s *Decider) GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	switch {
	case !t.Plan.Cell && !t.Plan.GivesBack(n):
		return nil
	case !t.Plan.Cell:
		return s.counted.giveBack(ctx, t, n, sums)
	case sums:
		return s.serial.GiveBack(ctx, t, n)
	}
	return nil
}

// giveBack removes n's units for t, whose write was acknowledged, from the store. It removes events at once. It subtracts
// from counters and totals at the earliest a store timeout after the addition: if the addition may be more recent, it
// queues the subtraction. It subtracts from counters only once, because they do not show whose units they have.
func (c *counted) giveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	var counts []store.Count
	if sums && !n.Again {
		counts = t.Plan.AppendCounts(nil, n.Epoch, n.At, -n.Cost)
	}
	events := t.Removal([]store.Event{{ID: n.ID}})
	now, err := c.opts.Timing.Checked()
	old := err == nil && now.Sub(n.At) > 2*(c.opts.StoreTimeout+c.opts.ClockTolerance)
	var failed error
	switch {
	case len(counts) == 0:
	case old:
		w := t.Adding(counts)
		if failed = c.store.Write(ctx, w); failed != nil && t.Plan.Tally {
			c.takeBacks.Push(totals.TakeBack{Write: w.Again(failed), Then: c.afterRemoval(t, true)})
		}
	default:
		c.takeBacks.Push(totals.TakeBack{Write: t.Adding(counts), Then: c.afterRemoval(t, true)})
	}
	if len(t.Plan.Logs) == 0 || n.Kept > 0 {
		return failed
	}
	if err := c.store.Write(ctx, events); err != nil {
		c.takeBacks.Push(totals.TakeBack{Write: events, Then: c.afterRemoval(t, true)})
		failed = errors.Join(failed, err)
	}
	return failed
}

// GiveBackUnder gives back or confirms, once and under term, the units of e, an entry of a claimed receipt. t is its target.
// Conversions and buckets under GuaranteeLocal change in memory, and are written behind.
func (s *Decider) GiveBackUnder(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	switch {
	case t.Plan.Cell:
		return s.alone(ctx, t.Key, func(ctx context.Context) error { return s.giveBackInFlight(ctx, t, term, e) })
	case !t.Plan.GivesBack(e):
		return nil
	}
	return s.counted.giveBackUnder(ctx, t, term, e)
}

// giveBackUnder gives e's units back in the store, and then in memory: if this instance dies in between, the store has the
// refund. The store's sums may change later, so a state with sums is dropped from memory.
func (c *counted) giveBackUnder(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	if err := c.behind.writeKey(ctx, t.Key); err != nil { // an event that is written after its removal would stay
		return err
	}
	if err := c.giveBack(ctx, t, e, true); err != nil || t.Plan.Counters {
		c.forgetDenial(t.Key)
		return err
	}
	c.owned.changes.Note(&t.Key) // a read that is in progress may have the event
	c.owned.takeOut(t, term, []count.Entry{*e})
	c.denials.Forget(t.Key)
	return nil
}

// SettleUnder makes n's held event permanent under term, while no batch of t's key is in progress.
func (s *Decider) SettleUnder(ctx context.Context, t *demand.Target, term owner.Term, n *count.Entry) error {
	return s.alone(ctx, t.Key, func(ctx context.Context) error {
		known := s.counted.owned.lookup(t, term)
		err := s.Store.Write(ctx, t.Settling(n))
		if known == nil || err != nil || !known.settle(n) { // the hold may have left memory
			s.counted.owned.change(t.Key)
		}
		return err
	})
}

// settle makes n's held event permanent in k, and reports whether k has it.
func (k *keyState) settle(n *count.Entry) (had bool) {
	s := k.open()
	defer k.close(s)
	return s.ReplaceEvent(store.Event{ID: n.ID, At: n.At, Cost: n.Cost})
}

// afterRemoval returns a function to call after units of t were removed: it drops the remembered denials and the state of
// t's key, which may have these units. If announce is true, it also informs the other instances.
func (c *counted) afterRemoval(t *demand.Target, announce bool) func(context.Context) {
	target := *t
	return func(ctx context.Context) {
		if c.forgetDenial(target.Key); announce && c.opts.GivenBack != nil {
			c.opts.GivenBack(ctx, &target)
		}
	}
}
