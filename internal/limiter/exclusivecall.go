package limiter

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// exclusiveCall decides charges together over a store that holds their keys still.
type exclusiveCall struct {
	judge func([]store.State, []store.Write) // the method, bound once

	exclusive *exclusive
	now       store.Instant
	charges   []*charge
	queries   []store.Query
	failed    error
	writes    writes
}

// decideAll decides charges at now, all or none of them, and fills in their decisions
// and errors.
func (x *exclusive) decideAll(ctx context.Context, charges []charge, now store.Instant) {
	call := x.call(now)
	for i := range charges {
		call.charges = append(call.charges, &charges[i])
	}
	err := call.update(ctx)
	x.done(call)
	for i := range charges {
		charges[i].err = err
	}
}

func (x *exclusive) call(now store.Instant) *exclusiveCall {
	c, _ := x.calls.Get().(*exclusiveCall)
	if c == nil {
		c = &exclusiveCall{exclusive: x}
		c.judge = c.decide
	}
	c.now = now
	return c
}

func (x *exclusive) done(c *exclusiveCall) {
	clear(c.charges)
	c.charges, c.queries = c.charges[:0], c.queries[:0]
	x.calls.Put(c)
}

func (c *exclusiveCall) update(ctx context.Context) error {
	for _, ch := range c.charges {
		q := ch.plan.Query(ch.key, c.now, 1, nil)
		c.queries = append(c.queries, q)
		for _, key := range ch.old {
			q.Key = key
			c.queries = append(c.queries, q)
		}
	}
	if err := c.exclusive.store.UpdateAll(ctx, c.queries, c.judge); err != nil {
		return err
	}
	return c.failed
}

// decide decides all charges over states, of which each charge has as many as keys.
func (c *exclusiveCall) decide(states []store.State, writes []store.Write) {
	if c.failed = c.open(states, writes); c.failed != nil {
		return
	}
	blocked := len(c.charges) > 1 && c.foresee(states)
	at := 0
	for _, ch := range c.charges {
		c.judgeIn(ch, ch.opIf(blocked), &states[at], &writes[at])
		at += 1 + len(ch.old)
	}
}

// open completes each charge's first state: by what was read under its older keys,
// by what is in its cell, and by what else counts. What is dated later than now is dated now.
func (c *exclusiveCall) open(states []store.State, writes []store.Write) error {
	at := 0
	for _, ch := range c.charges {
		s := &states[at]
		if ch.plan.Cell {
			if _, err := ch.plan.open(s); err != nil {
				return err
			}
		}
		for j := range 1 + len(ch.old) {
			c.now = c.exclusive.redate(ch.plan, &states[at+j], c.now, &writes[at+j])
		}
		for j := range ch.old {
			s.Merge(&states[at+1+j])
		}
		at += 1 + len(ch.old)
	}
	return nil
}

// foresee reports whether one of the charges denies all of them.
func (c *exclusiveCall) foresee(states []store.State) (blocked bool) {
	at := 0
	for _, ch := range c.charges {
		if ch.op.MayDeny() {
			s := &states[at]
			var d count.Decision
			ch.plan.Decide(&d, s, count.OpCheck, ch.id, max(c.now, s.Reset+1), ch.cost)
			blocked = blocked || !d.Stands()
		}
		at += 1 + len(ch.old)
	}
	return blocked
}

func (c *exclusiveCall) judgeIn(ch *charge, op count.Op, s *store.State, w *store.Write) {
	c.exclusive.judge(ch, op, c.now, s, w, &c.writes)
	if len(c.charges) > 1 { // each keeps what it wrote until all are stored
		w.Events, w.Add = slices.Clone(w.Events), slices.Clone(w.Add)
		if w.Cell != nil {
			cell := *w.Cell
			cell.Value = slices.Clone(cell.Value)
			w.Cell = &cell
		}
	}
}

// opIf returns what becomes of the charge when another one blocks the call: it is
// counted only if denied attempts are.
func (ch *charge) opIf(blocked bool) count.Op {
	if blocked && ch.op.MayDeny() && (ch.op == count.OpReserve || ch.plan.Count != policy.CountAll) {
		return count.OpCheck
	}
	return ch.op
}
