package held

import (
	"context"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Decider decides over a store that can hold keys still: read, judge and write
// with nobody in between, so nothing is ever taken back.
type Decider struct {
	store store.Exclusive
	ids   *store.EventIDs
	opts  *demand.Settings
	calls sync.Pool // of *heldCall
}

// New returns a Decider over store.
func New(store store.Exclusive, ids *store.EventIDs, opts *demand.Settings) *Decider {
	return &Decider{store: store, ids: ids, opts: opts}
}

// Instant returns the instant to decide at: no other clock dates what is counted here.
func (x *Decider) Instant() (store.Instant, error) { return x.opts.Timing.Instant(), nil }

// Decide decides c, and fills in its decision and error.
func (x *Decider) Decide(ctx context.Context, c *demand.Charge) {
	now := x.opts.Timing.Instant()
	if len(c.Old) > 0 {
		call := x.call(now)
		call.charges = append(call.charges, c)
		c.Err = call.update(ctx)
		x.done(call)
		return
	}
	still, ok := c.Memory.(*stillCharge)
	if !ok {
		still = new(stillCharge)
		still.judge = still.decide
		c.Memory = still
	}
	still.decider, still.charge, still.now, still.failed = x, c, now, nil
	still.query = c.Plan.Query(c.Key, now, 1, still.logs[:0])
	if c.Err = x.store.Update(ctx, &still.query, still.judge); c.Err == nil {
		c.Err = still.failed
	}
	still.charge = nil
}

// stillCharge is memory for deciding a charge while its key is held still. It can be used again.
type stillCharge struct {
	judge func(*store.State, *store.Write) // the method, bound once

	decider *Decider
	charge  *demand.Charge
	now     store.Instant
	failed  error

	query  store.Query
	logs   [store.SpanCount]store.LogQuery
	writes writes
}

// decide decides the charge over s, and fills in w.
func (c *stillCharge) decide(s *store.State, w *store.Write) {
	ch := c.charge
	if ch.Plan.Cell {
		if _, c.failed = cas.Open(ch.Plan, s); c.failed != nil {
			return
		}
	}
	if ch.Plan.IsAhead(s, c.now) {
		c.now = c.decider.redate(ch.Plan, s, c.now, w)
	}
	c.decider.judge(ch, ch.Op, c.now, s, w, &c.writes)
}

// writes is memory for what a decision writes.
type writes struct {
	events [1]store.Event
	counts [policy.MaxLimits]store.Count
	cell   store.CellWrite
}

// judge decides ch as op at now over s, and fills in w, of memory.
func (x *Decider) judge(ch *demand.Charge, op count.Op, at store.Instant, s *store.State, w *store.Write, memory *writes) {
	p, now := ch.Plan, max(at, s.Reset+1)
	p.Decide(&ch.Decision, s, op, ch.ID, now, ch.Cost)
	if now > at {
		ch.Decision.Postpone(now.Sub(at))
	}
	if ch.Decision.Recorded != count.RecordedYes {
		return
	}
	if ch.ID == (store.EventID{}) { // else it was made for its idempotency key
		ch.ID = x.ids.Next(now)
	}
	ch.Decision.Entry = count.Entry{ID: ch.ID, At: now, Epoch: s.Reset, Cost: ch.Cost}
	if len(p.Logs) > 0 {
		memory.events[0] = store.Event{ID: ch.ID, At: now, Cost: ch.Cost}
		if ch.Hold > 0 {
			memory.events[0].Ends = now.Add(ch.Hold)
		}
		w.Events, w.Logs = memory.events[:], p.LogWrites
	}
	if p.Counters {
		if add := p.AppendCounts(memory.counts[:0], s.Reset, now, ch.Cost); w.Add == nil {
			w.Add = add
		} else {
			w.Add = append(w.Add, add...)
		}
	}
	if p.Cell {
		memory.cell = cas.Shut(p, memory.cell.Value[:0], s, &cas.Chain{}, ch.ID, now, x.opts)
		w.Cell = &memory.cell
	}
}
