package limiter

import (
	"context"
	"sync"
)

// exclusive decides over a store that can hold keys still: read, judge and write
// with nobody in between, so nothing is ever taken back.
type exclusive struct {
	store  Exclusive
	ids    *eventIDs
	opts   *Options
	stills sync.Pool // of *stillCharge
	calls  sync.Pool // of *exclusiveCall
}

func newExclusive(store Exclusive, ids *eventIDs, opts *Options) *exclusive {
	return &exclusive{store: store, ids: ids, opts: opts}
}

// decide decides one charge at now, and fills in its decision and error.
func (x *exclusive) decide(ctx context.Context, c *charge, now Instant) {
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
	judge func(*State, *Write) // the method, bound once

	exclusive *exclusive
	charge    *charge
	now       Instant
	failed    error

	plan   *plan // that query is of
	query  Query
	logs   [SpanCount]LogQuery
	writes writes
}

// update decides ch, which is counted under one key, at now.
func (c *stillCharge) update(ctx context.Context, x *exclusive, ch *charge, now Instant) error {
	if c.judge == nil {
		c.judge = c.decide
	}
	c.exclusive, c.charge, c.now, c.failed = x, ch, now, nil
	if c.plan == ch.plan {
		c.plan.queryAgain(&c.query, ch.key, now)
	} else {
		c.plan, c.query = ch.plan, ch.plan.query(ch.key, now, 1, c.logs[:0])
	}
	err := x.store.Update(ctx, &c.query, c.judge)
	c.charge = nil
	if err != nil {
		return err
	}
	return c.failed
}

func (c *stillCharge) decide(s *State, w *Write) {
	ch := c.charge
	if ch.plan.cell {
		if _, c.failed = ch.plan.open(s); c.failed != nil {
			return
		}
	}
	c.now = c.exclusive.redate(ch.plan, s, c.now, w)
	c.exclusive.judge(ch, ch.op, c.now, s, w, &c.writes)
}

// date gives ch, which is counted at now, the id of its event, unless one was made for its
// idempotency key.
func (x *exclusive) date(ch *charge, now Instant) {
	if ch.id == (EventID{}) {
		ch.id = x.ids.next(now)
	}
}

// writes is memory for what a decision writes.
type writes struct {
	events [1]Event
	counts [MaxLimits]Count
	cell   CellWrite
}

// judge decides ch as op at now over s, and fills in w, of memory.
func (x *exclusive) judge(ch *charge, op Op, at Instant, s *State, w *Write, memory *writes) {
	p, now := ch.plan, max(at, s.Reset+1)
	fits := p.weigh(&ch.decision, s, now, ch.cost)
	counts := p.records(op, fits)
	if counts {
		x.date(ch, now)
		p.count(s, ch.id, now, ch.cost)
	}
	p.judge(&ch.decision, s, op, now, ch.cost, fits, counts)
	ch.decision.postpone(now.Sub(at))
	if !counts {
		return
	}
	ch.decision.entry = entry{id: ch.id, at: now, epoch: s.Reset, cost: ch.cost}
	if len(p.logs) > 0 {
		memory.events[0] = Event{ID: ch.id, At: now, Cost: ch.cost, Ends: endsAfter(now, ch.hold)}
		w.Events, w.Logs = memory.events[:], p.logWrites
	}
	if p.counters {
		if add := p.appendCounts(memory.counts[:0], s.Reset, now, ch.cost); w.Add == nil {
			w.Add = add
		} else {
			w.Add = append(w.Add, add...)
		}
	}
	if p.cell {
		memory.cell = p.shut(memory.cell.Value[:0], s, &chain{}, ch.id, now, x.opts)
		w.Cell = &memory.cell
	}
}
