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

// GiveBack removes n's units for t from the store.
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

// giveBack removes n's units for t, whose write was acknowledged, from the store. It removes events at once. It
// subtracts from counters once, as these do not show whose units they hold, and at the earliest a store timeout after
// the addition; if the addition may be more recent, it queues the subtraction.
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
			c.takeBacks.Push(totals.TakeBack{Write: w.Again(failed), Then: c.ending(t, true)})
		}
	default:
		c.takeBacks.Push(totals.TakeBack{Write: t.Adding(counts), Then: c.ending(t, true)})
	}
	if len(t.Plan.Logs) == 0 || n.Kept > 0 {
		return failed
	}
	if err := c.store.Write(ctx, events); err != nil {
		c.takeBacks.Push(totals.TakeBack{Write: events, Then: c.ending(t, true)})
		failed = errors.Join(failed, err)
	}
	return failed
}

// GiveBackUnder gives back or confirms under term, once, the units of e, the entry of a claimed receipt, for t, whose policy has
// one part. Conversions and buckets under GuaranteeLocal change in memory, and are written behind.
func (s *Decider) GiveBackUnder(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	switch {
	case t.Plan.Cell:
		return s.alone(ctx, t.Key, func(ctx context.Context) error { return s.giveBackInFlight(ctx, t, term, e) })
	case !t.Plan.GivesBack(e):
		return nil
	}
	return s.counted.giveBackUnder(ctx, t, term, e)
}

// giveBackUnder gives e's units back in the store, and then in memory. If this instance dies in between, the store has that.
// Sums are subtracted from later, so what is in memory of them is dropped.
func (c *counted) giveBackUnder(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	if err := c.behind.writeKey(ctx, t.Key); err != nil { // a removal before the event's write would leave it
		return err
	}
	if err := c.giveBack(ctx, t, e, true); err != nil || t.Plan.Counters {
		c.forgetDenial(t.Key)
		return err
	}
	c.owned.changes.Note(&t.Key) // a read that is under way may have the event
	c.owned.takeOut(t, term, []count.Entry{*e})
	c.denials.Forget(t.Key)
	return nil
}

// SettleUnder makes n's held event permanent under term, while no batch of t's key is in progress.
func (s *Decider) SettleUnder(ctx context.Context, t *demand.Target, term owner.Term, n *count.Entry) error {
	return s.alone(ctx, t.Key, func(ctx context.Context) error {
		known := s.counted.owned.of(t, term)
		err := s.Store.Write(ctx, t.Settling(n))
		if known == nil || err != nil || !known.settle(n) { // the hold may have left memory
			s.counted.owned.change(t.Key)
		}
		return err
	})
}

// settle makes n's held event permanent, and reports whether k has it.
func (k *keyState) settle(n *count.Entry) (had bool) {
	s := k.open()
	defer k.close(s)
	return s.ReplaceEvent(store.Event{ID: n.ID, At: n.At, Cost: n.Cost})
}

// ending returns a function that drops what this instance remembers of t, as earlier reads may have units that are
// removed by then. If told, it also tells the other instances.
func (c *counted) ending(t *demand.Target, told bool) func(context.Context) {
	of := *t
	return func(ctx context.Context) {
		if c.forgetDenial(of.Key); told && c.opts.GivenBack != nil {
			c.opts.GivenBack(ctx, &of)
		}
	}
}
