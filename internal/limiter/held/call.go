package held

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// heldCall decides charges together over a store that holds their keys still.
type heldCall struct {
	judge func([]store.State, []store.Write) // the method, bound once

	decider *Decider
	now     store.Instant
	charges []*demand.Charge
	queries []store.Query
	failed  error
	writes  writes
}

// DecideAll decides charges, all or none of them, and fills in their decisions and errors.
func (x *Decider) DecideAll(ctx context.Context, charges []demand.Charge) {
	call := x.call(x.opts.Timing.Instant())
	for i := range charges {
		call.charges = append(call.charges, &charges[i])
	}
	err := call.update(ctx)
	x.done(call)
	for i := range charges {
		charges[i].Err = err
	}
}

func (x *Decider) call(now store.Instant) *heldCall {
	c, _ := x.calls.Get().(*heldCall)
	if c == nil {
		c = &heldCall{decider: x}
		c.judge = c.decide
	}
	c.now = now
	return c
}

func (x *Decider) done(c *heldCall) {
	clear(c.charges)
	c.charges, c.queries = c.charges[:0], c.queries[:0]
	x.calls.Put(c)
}

func (c *heldCall) update(ctx context.Context) error {
	for _, ch := range c.charges {
		q := ch.Plan.Query(ch.Key, c.now, 1, nil)
		c.queries = append(c.queries, q)
		for _, key := range ch.Old {
			q.Key = key
			c.queries = append(c.queries, q)
		}
	}
	if err := c.decider.store.UpdateAll(ctx, c.queries, c.judge); err != nil {
		return err
	}
	return c.failed
}

// decide decides all charges over states, of which each charge has as many as keys.
func (c *heldCall) decide(states []store.State, writes []store.Write) {
	if c.failed = c.open(states, writes); c.failed != nil {
		return
	}
	blocked := len(c.charges) > 1 && c.foresee(states)
	at := 0
	for _, ch := range c.charges {
		c.judgeIn(ch, ch.OpIf(blocked), &states[at], &writes[at])
		at += 1 + len(ch.Old)
	}
}

// open completes each charge's first state: by what was read under its older keys,
// by what is in its cell, and by what else counts. What is dated later than now is dated now.
func (c *heldCall) open(states []store.State, writes []store.Write) error {
	at := 0
	for _, ch := range c.charges {
		s := &states[at]
		if ch.Plan.Cell {
			if _, err := cas.Open(ch.Plan, s); err != nil {
				return err
			}
		}
		for j := range 1 + len(ch.Old) {
			if s := &states[at+j]; ch.Plan.IsAhead(s, c.now) {
				c.now = c.decider.redate(ch.Plan, s, c.now, &writes[at+j])
			}
		}
		for j := range ch.Old {
			s.Merge(&states[at+1+j])
		}
		at += 1 + len(ch.Old)
	}
	return nil
}

// foresee reports whether one of the charges denies all of them.
func (c *heldCall) foresee(states []store.State) (blocked bool) {
	at := 0
	for _, ch := range c.charges {
		if ch.Op.MayDeny() {
			s := &states[at]
			var d count.Decision
			ch.Plan.Decide(&d, s, count.OpCheck, ch.ID, max(c.now, s.Reset+1), ch.Cost)
			blocked = blocked || !d.Stands()
		}
		at += 1 + len(ch.Old)
	}
	return blocked
}

func (c *heldCall) judgeIn(ch *demand.Charge, op count.Op, s *store.State, w *store.Write) {
	c.decider.judge(ch, op, c.now, s, w, &c.writes)
	if len(c.charges) > 1 { // each keeps what it wrote until all are stored
		w.Events, w.Add = slices.Clone(w.Events), slices.Clone(w.Add)
		if w.Cell != nil {
			cell := *w.Cell
			cell.Value = slices.Clone(cell.Value)
			w.Cell = &cell
		}
	}
}
