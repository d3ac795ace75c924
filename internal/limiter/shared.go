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

// decide decides one charge.
func (s *shared) decide(ctx context.Context, c charge) (Decision, error) {
	if len(c.plan.parts) > 0 || c.hold > 0 || c.id != (EventID{}) || c.ends {
		charges := []charge{c}
		s.decideAll(ctx, charges)
		return charges[0].decision, charges[0].err
	}
	if d, denied := s.denied(&c); denied {
		return d, nil
	}
	if d, leased := s.counted.leases.answer(&c.target, c.op, c.cost, s.counted.ids, InstantOf(s.opts.Now())); leased {
		return d, nil
	}
	r := &request{op: c.op, cost: c.cost}
	if c.op == OpCheck {
		ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
		defer cancel()
		s.check(ctx, &c.target, r)
		return r.decision, r.err
	}
	s.flights.join(ctx, flightKey{c.plan, c.key}, r, s.opts.StoreTimeout, func(ctx context.Context, batch []*request) {
		s.settle(ctx, &c.target, batch)
	})
	return r.decision, r.err
}

// denied decides c without asking the store if what is known leaves no room for it.
func (s *shared) denied(c *charge) (Decision, bool) {
	if c.op == OpRecord || c.plan.cell {
		return Decision{}, false
	}
	return s.counted.denials.answer(&c.target, c.cost, InstantOf(s.opts.Now()))
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
