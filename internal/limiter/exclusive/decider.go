package exclusive

import (
	"context"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Decider decides over a store that can lock keys. Nobody else reads or writes a key between its read and its write, so no
// unit is ever taken back.
type Decider struct {
	store store.Exclusive
	ids   *store.EventIDs
	opts  *demand.Settings
	calls sync.Pool // of *lockedCall
}

// New returns a Decider over store.
func New(store store.Exclusive, ids *store.EventIDs, opts *demand.Settings) *Decider {
	return &Decider{store: store, ids: ids, opts: opts}
}

// Instant returns the instant to decide at. No other clock dates this store's units, so it needs no tolerance.
func (x *Decider) Instant() (store.Instant, error) { return x.opts.Timing.Instant(), nil }

// Decide decides c, and fills in its decision and error.
func (x *Decider) Decide(ctx context.Context, c *demand.Charge) {
	now := x.opts.Timing.Instant()
	if len(c.OldKeys) > 0 {
		call := x.call(now)
		call.charges = append(call.charges, c)
		c.Err = call.update(ctx)
		x.done(call)
		return
	}
	locked, ok := c.Memory.(*lockedCharge)
	if !ok {
		locked = new(lockedCharge)
		locked.judge = locked.decide
		c.Memory = locked
	}
	locked.decider, locked.charge, locked.now, locked.failed = x, c, now, nil
	locked.query = c.Plan.Query(c.Key, now, 1, locked.writes.logs[:0])
	if c.Err = x.store.Update(ctx, &locked.query, locked.judge); c.Err == nil {
		c.Err = locked.failed
	}
	locked.charge = nil
}

// lockedCharge has the memory for deciding a charge while its key is locked. It can be reused.
type lockedCharge struct {
	judge func(*store.State, *store.Write) // the method decide, bound once

	decider *Decider
	charge  *demand.Charge
	now     store.Instant
	failed  error

	query  store.Query
	writes writes
}

// decide decides the charge over s, and fills in w.
func (c *lockedCharge) decide(s *store.State, w *store.Write) {
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

// writes has the memory for the query and the writes of a decision.
type writes struct {
	logs   [store.SpanCount]store.LogQuery
	events [1]store.Event
	counts [policy.MaxLimits]store.Count
	cell   store.CellWrite
}

// judge decides ch as op at now over s, and fills in w with parts of memory.
func (x *Decider) judge(ch *demand.Charge, op count.Op, at store.Instant, s *store.State, w *store.Write, memory *writes) {
	p, now := ch.Plan, max(at, s.Reset+1)
	p.Decide(&ch.Decision, s, op, ch.ID, now, ch.Cost)
	if now > at {
		ch.Decision.Postpone(now.Sub(at))
	}
	if ch.Decision.Recorded != count.RecordedYes {
		return
	}
	if ch.ID == (store.EventID{}) { // otherwise the claim of an idempotency key has fixed it
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

// A state can have later times than the clock reads: after the clock was set back, or in a file that was written by a clock
// that was ahead. A store that locks keys has one clock, so a later time is wrong, and the decider replaces it by now. Units
// with such times always count, so that nothing more is admitted; once redated, they count for at most a window from now.

// redate replaces all later times by now in s, which was read for p and is ahead of at, and makes w do the same in the
// store. It returns the instant at which to decide: now, or at if nothing had to change. It reads the clock again, because a
// concurrent call may have dated s after at.
func (x *Decider) redate(p *demand.Plan, s *store.State, at store.Instant, w *store.Write) store.Instant {
	now := x.opts.Timing.Instant()
	if !p.IsAhead(s, now) {
		return at
	}
	w.Present = now
	s.Reset = min(s.Reset, now-1)
	for i := range s.Logs {
		s.Logs[i].Redate(now)
	}
	w.Add = p.RedateCounts(s, now)
	p.RedateCells(s, now)
	if p.Cell {
		cell := cas.Shut(p, nil, s, &cas.Chain{}, x.ids.Next(now), now, x.opts)
		w.Cell = &cell
	}
	return now
}

// lockedCall decides charges together over a store that locks their keys.
type lockedCall struct {
	judge func([]store.State, []store.Write) // the method decide, bound once

	decider *Decider
	now     store.Instant
	charges []*demand.Charge
	queries []store.Query
	memory  []writes // for each charge
	failed  error
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

func (x *Decider) call(now store.Instant) *lockedCall {
	c, _ := x.calls.Get().(*lockedCall)
	if c == nil {
		c = &lockedCall{decider: x}
		c.judge = c.decide
	}
	c.now = now
	return c
}

func (x *Decider) done(c *lockedCall) {
	clear(c.charges)
	c.charges, c.queries = c.charges[:0], c.queries[:0]
	x.calls.Put(c)
}

func (c *lockedCall) update(ctx context.Context) error {
	for i, ch := range c.charges {
		if i == len(c.memory) {
			c.memory = append(c.memory, writes{})
		}
		q := ch.Plan.Query(ch.Key, c.now, 1, c.memory[i].logs[:0])
		c.queries = append(c.queries, q)
		for _, key := range ch.OldKeys {
			q.Key = key
			c.queries = append(c.queries, q)
		}
	}
	if err := c.decider.store.UpdateAll(ctx, c.queries, c.judge); err != nil {
		return err
	}
	return c.failed
}

// decide decides all charges over states, which has one state for each key of each charge.
func (c *lockedCall) decide(states []store.State, writes []store.Write) {
	if c.failed = c.open(states, writes); c.failed != nil {
		return
	}
	blocked := len(c.charges) > 1 && c.anyDenies(states)
	at := 0
	for i, ch := range c.charges {
		c.decider.judge(ch, ch.OpIf(blocked), c.now, &states[at], &writes[at], &c.memory[i])
		at += 1 + len(ch.OldKeys)
	}
}

// open completes each charge's first state by its decoded cell and by the states of the charge's old keys. It replaces all
// later times by now.
func (c *lockedCall) open(states []store.State, writes []store.Write) error {
	at := 0
	for _, ch := range c.charges {
		s := &states[at]
		if ch.Plan.Cell {
			if _, err := cas.Open(ch.Plan, s); err != nil {
				return err
			}
		}
		for j := range 1 + len(ch.OldKeys) {
			if s := &states[at+j]; ch.Plan.IsAhead(s, c.now) {
				c.now = c.decider.redate(ch.Plan, s, c.now, &writes[at+j])
			}
		}
		for j := range ch.OldKeys {
			s.Merge(&states[at+1+j])
		}
		at += 1 + len(ch.OldKeys)
	}
	return nil
}

// anyDenies reports whether one of the charges denies the call.
func (c *lockedCall) anyDenies(states []store.State) (blocked bool) {
	at := 0
	for _, ch := range c.charges {
		if ch.Op.MayDeny() {
			s := &states[at]
			var d count.Decision
			ch.Plan.Decide(&d, s, count.OpCheck, ch.ID, max(c.now, s.Reset+1), ch.Cost)
			blocked = blocked || !d.Stands()
		}
		at += 1 + len(ch.OldKeys)
	}
	return blocked
}
