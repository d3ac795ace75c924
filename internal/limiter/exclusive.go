package limiter

import (
	"context"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// exclusive decides over a store that can hold keys still: read, judge and write
// with nobody in between, so nothing is ever taken back.
type exclusive struct {
	store  store.Exclusive
	ids    *store.EventIDs
	opts   *Options
	stills sync.Pool // of *stillCharge
	calls  sync.Pool // of *exclusiveCall
}

func newExclusive(store store.Exclusive, ids *store.EventIDs, opts *Options) *exclusive {
	return &exclusive{store: store, ids: ids, opts: opts}
}

// decide decides one charge at now, and fills in its decision and error.
func (x *exclusive) decide(ctx context.Context, c *charge, now store.Instant) {
	switch {
	case len(c.old) > 0:
		call := x.call(now)
		call.charges = append(call.charges, c)
		c.err = call.update(ctx)
		x.done(call)
	case c.still != nil:
		c.err = c.still.update(ctx, x, c, now)
	default:
		still, ok := x.stills.Get().(*stillCharge)
		if !ok {
			still = new(stillCharge)
		}
		c.err = still.update(ctx, x, c, now)
		x.stills.Put(still)
	}
}

// stillCharge is memory for deciding a charge while its key is held still. The zero value
// is ready, and can be used again.
type stillCharge struct {
	judge func(*store.State, *store.Write) // the method, bound once

	exclusive *exclusive
	charge    *charge
	now       store.Instant
	failed    error

	plan   *plan // that query is of
	query  store.Query
	logs   [store.SpanCount]store.LogQuery
	writes writes
}

// update decides ch, which is counted under one key, at now.
func (c *stillCharge) update(ctx context.Context, x *exclusive, ch *charge, now store.Instant) error {
	if c.judge == nil {
		c.judge = c.decide
	}
	c.exclusive, c.charge, c.now, c.failed = x, ch, now, nil
	if c.plan == ch.plan {
		c.plan.QueryAgain(&c.query, ch.key, now)
	} else {
		c.plan, c.query = ch.plan, ch.plan.Query(ch.key, now, 1, c.logs[:0])
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
	if ch.plan.Cell {
		if _, c.failed = ch.plan.open(s); c.failed != nil {
			return
		}
	}
	c.now = c.exclusive.redate(ch.plan, s, c.now, w)
	c.exclusive.judge(ch, ch.op, c.now, s, w, &c.writes)
}

// date gives ch, which is counted at now, the id of its event, unless one was made for its
// idempotency key.
func (x *exclusive) date(ch *charge, now store.Instant) {
	if ch.id == (store.EventID{}) {
		ch.id = x.ids.Next(now)
	}
}

// writes is memory for what a decision writes.
type writes struct {
	events [1]store.Event
	counts [policy.MaxLimits]store.Count
	cell   store.CellWrite
}

// judge decides ch as op at now over s, and fills in w, of memory.
func (x *exclusive) judge(ch *charge, op count.Op, at store.Instant, s *store.State, w *store.Write, memory *writes) {
	p, now := ch.plan, max(at, s.Reset+1)
	fits := p.Weigh(&ch.decision, s, now, ch.cost)
	counts := p.Records(op, fits)
	if counts {
		x.date(ch, now)
		p.Add(s, ch.id, now, ch.cost)
	}
	p.Judge(&ch.decision, s, op, now, ch.cost, fits, counts)
	ch.decision.Postpone(now.Sub(at))
	if !counts {
		return
	}
	ch.decision.Entry = count.Entry{ID: ch.id, At: now, Epoch: s.Reset, Cost: ch.cost}
	if len(p.Logs) > 0 {
		memory.events[0] = store.Event{ID: ch.id, At: now, Cost: ch.cost, Ends: endsAfter(now, ch.hold)}
		w.Events, w.Logs = memory.events[:], p.logWrites
	}
	if p.Counters {
		if add := p.AppendCounts(memory.counts[:0], s.Reset, now, ch.cost); w.Add == nil {
			w.Add = add
		} else {
			w.Add = append(w.Add, add...)
		}
	}
	if p.Cell {
		memory.cell = p.shut(memory.cell.Value[:0], s, &chain{}, ch.id, now, x.opts)
		w.Cell = &memory.cell
	}
}
