package limiter

import (
	"context"
)

// shared decides over a store that can't hold a key still. Requests for one key
// travel together, whatever the way in which they are decided.
type shared struct {
	store   Store
	opts    *Options
	flights flights
	counted *counted // writes first and counts then
	serial  *serial  // compares and sets
}

func newShared(store Store, ids *eventIDs, opts *Options) *shared {
	return &shared{
		store: store, opts: opts,
		counted: newCounted(store, ids, opts),
		serial:  &serial{store: store, ids: ids, opts: opts},
	}
}

// decide decides one charge, and fills in its decision and error.
func (s *shared) decide(ctx context.Context, c *charge) {
	if len(c.plan.parts) > 0 || c.hold > 0 || c.id != (EventID{}) || c.ends {
		charges := []charge{*c}
		s.decideAll(ctx, charges)
		c.decision, c.err = charges[0].decision, charges[0].err
		return
	}
	if s.recall(c, InstantOf(s.opts.Now())) {
		return
	}
	r := &request{op: c.op, cost: c.cost}
	s.ask(ctx, c.target, r)
	c.decision, c.err = r.decision, r.err
}

// recall decides c without asking the store if a lease holds enough, which also knows
// better how much there is, or what is known leaves no room.
func (s *shared) recall(c *charge, now Instant) (decided bool) {
	if s.counted.recallLease(&c.decision, &c.target, c.op, c.cost, now) {
		return true
	}
	return c.op != OpRecord && !c.plan.cell && s.counted.denials.answer(&c.decision, &c.target, c.cost, now)
}

// ask answers r by what the store has of t, which is its own: that may go on when nobody
// waits any more.
func (s *shared) ask(ctx context.Context, t target, r *request) {
	if r.op == OpCheck {
		ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
		defer cancel()
		s.check(ctx, &t, r)
		return
	}
	s.flights.join(ctx, flightKey{t.plan, t.key}, r, s.opts.StoreTimeout, func(ctx context.Context, batch []*request) {
		s.settle(ctx, &t, batch)
	})
}

func (s *shared) check(ctx context.Context, t *target, r *request) {
	if t.plan.cell {
		s.serial.check(ctx, t, r)
	} else {
		s.counted.check(ctx, t, r)
	}
}

func (s *shared) settle(ctx context.Context, t *target, batch []*request) {
	if t.plan.cell {
		s.serial.settle(ctx, t, batch)
	} else {
		s.counted.settle(ctx, t, batch)
	}
}
