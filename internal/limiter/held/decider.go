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
func (x *Decider) Instant() (store.Instant, error) { return x.now(), nil }

func (x *Decider) now() store.Instant { return x.opts.Timing.Instant() }

// Decide decides c, and fills in its decision and error.
func (x *Decider) Decide(ctx context.Context, c *demand.Charge) {
	now := x.now()
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
		c.Memory = still
	}
	c.Err = still.update(ctx, x, c, now)
}

// stillCharge is memory for deciding a charge while its key is held still. The zero value
// is ready, and can be used again.
type stillCharge struct {
	judge func(*store.State, *store.Write) // the method, bound once

	decider *Decider
	charge  *demand.Charge
	now     store.Instant
	failed  error

	plan   *demand.Plan // that query is of
	query  store.Query
	logs   [store.SpanCount]store.LogQuery
	writes writes
}

// update decides ch, which is counted under one key, at now.
func (c *stillCharge) update(ctx context.Context, x *Decider, ch *demand.Charge, now store.Instant) error {
	if c.judge == nil {
		c.judge = c.decide
	}
	c.decider, c.charge, c.now, c.failed = x, ch, now, nil
	if c.plan == ch.Plan {
		c.plan.QueryAgain(&c.query, ch.Key, now)
	} else {
		c.plan, c.query = ch.Plan, ch.Plan.Query(ch.Key, now, 1, c.logs[:0])
	}
	err := x.store.Update(ctx, &c.query, c.judge)
	c.charge = nil
	if err != nil {
		return err
	}
	return c.failed
}

func (c *stillCharge) decide(s *store.State, w *store.Write) {
	ch := c.charge
	if ch.Plan.Cell {
		if _, c.failed = cas.Open(ch.Plan, s); c.failed != nil {
			return
		}
	}
	c.now = c.decider.redate(ch.Plan, s, c.now, w)
	c.decider.judge(ch, ch.Op, c.now, s, w, &c.writes)
}

// date gives ch, which is counted at now, the id of its event, unless one was made for its
// idempotency key.
func (x *Decider) date(ch *demand.Charge, now store.Instant) {
	if ch.ID == (store.EventID{}) {
		ch.ID = x.ids.Next(now)
	}
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
	fits := p.Weigh(&ch.Decision, s, now, ch.Cost)
	counts := p.Records(op, fits)
	if counts {
		x.date(ch, now)
		p.Add(s, ch.ID, now, ch.Cost)
	}
	p.Judge(&ch.Decision, s, op, now, ch.Cost, fits, counts)
	ch.Decision.Postpone(now.Sub(at))
	if !counts {
		return
	}
	ch.Decision.Entry = count.Entry{ID: ch.ID, At: now, Epoch: s.Reset, Cost: ch.Cost}
	if len(p.Logs) > 0 {
		memory.events[0] = store.Event{ID: ch.ID, At: now, Cost: ch.Cost, Ends: demand.EndsAfter(now, ch.Hold)}
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
