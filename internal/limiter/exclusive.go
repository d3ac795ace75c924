package limiter

import (
	"context"
	"sync"
)

// exclusive decides over a store that can hold a key still: read, judge and
// write with nobody in between, so nothing is ever taken back.
type exclusive struct {
	store Exclusive
	ids   *eventIDs
	calls sync.Pool // of *exclusiveCall
}

func newExclusive(store Exclusive, ids *eventIDs) *exclusive {
	return &exclusive{store: store, ids: ids}
}

func (x *exclusive) decide(ctx context.Context, p *plan, op Op, key Key, now Instant, cost int64) (Decision, error) {
	c, _ := x.calls.Get().(*exclusiveCall)
	if c == nil {
		c = new(exclusiveCall)
		c.judge = c.judgeStill
	}
	c.plan, c.op, c.now, c.cost = p, op, now, cost
	if op != OpCheck {
		c.id = x.ids.next(now)
	}
	c.query = p.query(key, now, 1, c.logs[:0])
	err := x.store.Update(ctx, &c.query, c.judge)
	d := c.decision
	c.plan, c.decision = nil, Decision{}
	x.calls.Put(c)
	return d, err
}

// exclusiveCall is one decision's scratch memory.
type exclusiveCall struct {
	judge func(*State, *Write) // judgeStill, bound once

	plan *plan
	op   Op
	id   EventID
	now  Instant
	cost int64

	query    Query
	logs     [SpanCount]LogQuery
	events   [1]Event
	counts   [MaxLimits]Count
	decision Decision
}

func (c *exclusiveCall) judgeStill(s *State, w *Write) {
	now := max(c.now, s.Reset+1)
	c.decision = c.plan.decide(s, c.op, c.id, now, c.cost)
	c.decision.postpone(now.Sub(c.now))
	if c.decision.Recorded != RecordedYes {
		return
	}
	if len(c.plan.logs) > 0 {
		c.events[0] = Event{ID: c.id, At: now, Cost: c.cost}
		w.Events, w.Logs = c.events[:], c.plan.logWrites
	}
	w.Add = c.plan.appendCounts(c.counts[:0], s.Reset, now, c.cost)
}
