package limiter

import (
	"context"
	"slices"
	"sync"
)

// exclusive decides over a store that can hold keys still: read, judge and write
// with nobody in between, so nothing is ever taken back.
type exclusive struct {
	store  Exclusive
	ids    *eventIDs
	opts   *Options
	poured func(*charge) // told of what a bucket takes, while its key is held still; nil: nobody is
	calls  sync.Pool     // of *exclusiveCall
}

func newExclusive(store Exclusive, ids *eventIDs, opts *Options) *exclusive {
	return &exclusive{store: store, ids: ids, opts: opts}
}

// decide decides one charge at now, and fills in its decision and error.
func (x *exclusive) decide(ctx context.Context, c *charge, now Instant) {
	call := x.call(now)
	call.charges = append(call.charges, c)
	c.err = x.update(ctx, call)
	x.done(call)
}

// decideAll decides charges at now, all or none of them, and fills in their decisions
// and errors.
func (x *exclusive) decideAll(ctx context.Context, charges []charge, now Instant) {
	call := x.call(now)
	for i := range charges {
		call.charges = append(call.charges, &charges[i])
	}
	err := x.update(ctx, call)
	x.done(call)
	for i := range charges {
		charges[i].err = err
	}
}

func (x *exclusive) call(now Instant) *exclusiveCall {
	c, _ := x.calls.Get().(*exclusiveCall)
	if c == nil {
		c = new(exclusiveCall)
		c.judge = c.judgeStill
		c.charges = c.one[:0]
		c.queries = c.query[:0]
	}
	c.now, c.ids, c.opts, c.poured, c.failed, c.charges = now, x.ids, x.opts, x.poured, nil, c.charges[:0]
	return c
}

func (x *exclusive) done(c *exclusiveCall) {
	clear(c.charges)
	x.calls.Put(c)
}

func (x *exclusive) update(ctx context.Context, c *exclusiveCall) error {
	c.queries = c.queries[:0]
	logs := c.logs[:0]
	for _, ch := range c.charges {
		if ch.op != OpCheck && ch.id == (EventID{}) {
			ch.id = x.ids.next(c.now)
		}
		q := ch.plan.query(ch.key, c.now, 1, logs)
		logs = q.Logs[len(q.Logs):] // the next query's come after
		c.queries = append(c.queries, q)
		for _, key := range ch.old {
			q.Key = key
			c.queries = append(c.queries, q)
		}
	}
	if err := x.store.Update(ctx, c.queries, c.judge); err != nil {
		return err
	}
	return c.failed
}

// exclusiveCall is one call's scratch memory.
type exclusiveCall struct {
	judge func([]State, []Write) // judgeStill, bound once
	ids   *eventIDs
	opts  *Options

	poured func(*charge)

	now     Instant
	charges []*charge
	queries []Query
	failed  error

	one    [1]*charge
	query  [1]Query
	logs   [SpanCount]LogQuery
	events [1]Event
	counts [MaxLimits]Count
	spare  []LimitDecision // memory for the verdicts of the next decisions
}

// limitsAtOnce is for how many limits' verdicts memory is made at once: of 48 bytes each,
// it is as large as an object of one of the runtime's sizes.
const limitsAtOnce = 10

// limits returns memory for the verdicts of n limits, which a decision keeps.
func (c *exclusiveCall) limits(n int) []LimitDecision {
	if len(c.spare) < n {
		c.spare = make([]LimitDecision, max(n, limitsAtOnce))
	}
	limits := c.spare[:n:n]
	c.spare = c.spare[n:]
	return limits
}

// judgeStill decides all charges over states, of which each charge has as many as
// keys.
func (c *exclusiveCall) judgeStill(states []State, writes []Write) {
	if c.failed = c.open(states); c.failed != nil {
		return
	}
	blocked := len(c.charges) > 1 && c.foresee(states)
	at := 0
	for _, ch := range c.charges {
		c.decide(ch, ch.opIf(blocked), &states[at], &writes[at])
		at += 1 + len(ch.old)
	}
}

// open completes each charge's first state: by what was read under its older keys,
// and by what is in its cell.
func (c *exclusiveCall) open(states []State) error {
	at := 0
	for _, ch := range c.charges {
		s := &states[at]
		for j := range ch.old {
			s.merge(&states[at+1+j])
		}
		if ch.plan.cell {
			if _, err := ch.plan.open(s); err != nil {
				return err
			}
		}
		at += 1 + len(ch.old)
	}
	return nil
}

// foresee reports whether one of the charges denies all of them.
func (c *exclusiveCall) foresee(states []State) (blocked bool) {
	at := 0
	for _, ch := range c.charges {
		if ch.op.mayDeny() {
			s := &states[at]
			var d Decision
			ch.plan.decide(&d, s, OpCheck, ch.id, max(c.now, s.Reset+1), ch.cost)
			blocked = blocked || !d.stands()
		}
		at += 1 + len(ch.old)
	}
	return blocked
}

func (c *exclusiveCall) decide(ch *charge, op Op, s *State, w *Write) {
	now := max(c.now, s.Reset+1)
	if ch.plan.mirrors != nil && op != OpCheck && ch.id.Instant() < now { // what is written behind is dated by its id
		ch.id = c.ids.next(now)
	}
	ch.plan.decideIn(c.limits(len(ch.plan.rules)), &ch.decision, s, op, ch.id, now, ch.cost)
	ch.decision.postpone(now.Sub(c.now))
	if ch.decision.Recorded != RecordedYes {
		return
	}
	ch.decision.entry = entry{key: ch.key, id: ch.id, at: now, epoch: s.Reset, cost: ch.cost}
	if len(ch.plan.logs) > 0 {
		c.events[0] = Event{ID: ch.id, At: now, Cost: ch.cost, Ends: endsAfter(now, ch.hold)}
		w.Events, w.Logs = c.events[:], ch.plan.logWrites
	}
	if ch.plan.counters {
		w.Add = ch.plan.appendCounts(c.counts[:0], s.Reset, now, ch.cost)
	}
	if ch.plan.cell {
		w.Cell = ch.plan.shut(s, &chain{}, ch.id, now, c.opts)
		if c.poured != nil {
			c.poured(ch)
		}
	}
	if len(c.charges) > 1 { // each keeps what it wrote until all are stored
		w.Events, w.Add = slices.Clone(w.Events), slices.Clone(w.Add)
	}
}

// opIf returns what becomes of the charge when another one blocks the call: it is
// counted only if denied attempts are.
func (ch *charge) opIf(blocked bool) Op {
	if blocked && ch.op.mayDeny() && (ch.op == opReserve || ch.plan.Count != CountAll) {
		return OpCheck
	}
	return ch.op
}
