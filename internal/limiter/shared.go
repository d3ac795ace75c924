package limiter

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// shared decides over a store that can't hold a key still. Requests for one key
// travel together, whatever the way in which they are decided.
type shared struct {
	store   store.Store
	opts    *Options
	flights flights
	counted *counted // writes first and counts then
	serial  *serial  // compares and sets

	prepared *prepared // by calls of several demands
}

func newShared(store store.Store, ids *store.EventIDs, opts *Options) *shared {
	counted := newCounted(store, ids, opts)
	s := &shared{
		store: store, opts: opts,
		flights: flights{together: opts.Together},
		counted: counted,
		serial:  &serial{store: store, ids: ids, opts: opts, full: &counted.denials},

		prepared: &counted.prepared,
	}
	counted.behind = &behind{tallies: counted.tallies, serial: s.serial, owned: &counted.owned, opts: opts}
	return s
}

// decide decides one charge, which is asked for at now, and fills in its decision and error.
func (s *shared) decide(ctx context.Context, c *charge, now store.Instant) {
	if len(c.plan.parts) > 0 || c.hold > 0 || c.id != (store.EventID{}) || c.ends {
		if s.recallDenial(&c.decision, &c.target, c.op, c.cost, now) {
			return
		}
		charges := []charge{*c}
		s.decideAll(ctx, charges)
		c.decision, c.err, c.placed = charges[0].decision, charges[0].err, charges[0].placed
		return
	}
	if c.right != nil && s.counted.owned.answer(&c.decision, c, now) || s.recallDenial(&c.decision, &c.target, c.op, c.cost, now) {
		return
	}
	s.askPatiently(ctx, c)
}

// recallDenial denies a request of t without asking the store if what is known leaves no
// room. Nothing of it is to be counted then.
func (s *shared) recallDenial(d *count.Decision, t *target, op count.Op, cost int64, now store.Instant) (decided bool) {
	return op != count.OpRecord && !t.plan.Cell && s.counted.denials.answer(d, t, cost, now)
}

// ask answers r by what the store has of t, which is its own: that may go on when nobody
// waits any more.
func (s *shared) ask(ctx context.Context, t target, r *request) {
	if r.op == count.OpCheck {
		ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
		defer cancel()
		s.check(ctx, &t, r)
		return
	}
	s.flights.join(ctx, t.key, r, s.opts.StoreTimeout, func(ctx context.Context, batch []*request) {
		s.settle(ctx, &t, batch)
	})
}

func (s *shared) check(ctx context.Context, t *target, r *request) {
	if t.plan.Cell {
		s.serial.check(ctx, t, r)
	} else {
		s.counted.check(ctx, t, r)
	}
}

func (s *shared) settle(ctx context.Context, t *target, batch []*request) {
	batch, done := s.abortAll(ctx, t, batch)
	defer done()
	if batch = s.prepared.begin(t, batch, s.opts); len(batch) == 0 {
		return
	}
	switch {
	case !t.plan.Cell:
		s.counted.settle(ctx, t, batch)
	case !t.plan.behind || !s.settleInMemory(ctx, t, batch):
		s.serial.settle(ctx, t, batch)
	}
	s.prepared.end(t.key, batch)
	s.doubt(t, batch)
}
