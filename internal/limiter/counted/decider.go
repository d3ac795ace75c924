package counted

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// Decider decides over a store that can't hold a key still. Requests for one key
// travel together, whatever the way in which they are decided.
type Decider struct {
	Store   store.Store
	opts    *demand.Settings
	flights flights
	counted *counted     // writes first and counts then
	serial  *cas.Decider // compares and sets

	prepared *prepared // by calls of several demands
}

// New returns a Decider over store, which an engine with these settings has one of.
func New(store store.Store, ids *store.EventIDs, opts *demand.Settings) *Decider {
	counted := newCounted(store, ids, opts)
	s := &Decider{
		Store: store, opts: opts, flights: flights{together: opts.Together},
		counted: counted,
		serial:  cas.New(store, ids, opts, counted.denials),

		prepared: &counted.prepared,
	}
	counted.behind = &behind{tallies: counted.tallies, serial: s.serial, owned: &counted.owned, opts: opts}
	return s
}

// Decide decides one charge, which is asked for at now, and fills in its decision and error.
func (s *Decider) Decide(ctx context.Context, c *demand.Charge, now store.Instant) {
	if len(c.Plan.Parts) > 0 || c.Hold > 0 || c.ID != (store.EventID{}) || c.Ends {
		if s.RecallDenial(&c.Decision, &c.Target, c.Op, c.Cost, now) {
			return
		}
		charges := []demand.Charge{*c}
		s.DecideAll(ctx, charges)
		c.Decision, c.Err, c.Placed = charges[0].Decision, charges[0].Err, charges[0].Placed
		return
	}
	if c.Right != nil && s.counted.owned.answer(&c.Decision, c, now) || s.RecallDenial(&c.Decision, &c.Target, c.Op, c.Cost, now) {
		return
	}
	s.askPatiently(ctx, c)
}

// RecallDenial denies a request of t without asking the store if what is known leaves no
// room. Nothing of it is to be counted then.
func (s *Decider) RecallDenial(d *count.Decision, t *demand.Target, op count.Op, cost int64, now store.Instant) (decided bool) {
	return op != count.OpRecord && !t.Plan.Cell && s.counted.denials.Answer(d, t, cost, now)
}

// ask answers r by what the store has of t, which is its own: that may go on when nobody
// waits any more.
func (s *Decider) ask(ctx context.Context, t demand.Target, r *demand.Request) {
	if r.Op == count.OpCheck {
		ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
		defer cancel()
		s.check(ctx, &t, r)
		return
	}
	s.flights.join(ctx, t.Key, r, s.opts.StoreTimeout, func(ctx context.Context, batch []*demand.Request) {
		s.settle(ctx, &t, batch)
	})
}

func (s *Decider) check(ctx context.Context, t *demand.Target, r *demand.Request) {
	if t.Plan.Cell {
		s.serial.Check(ctx, t, r)
	} else {
		s.counted.check(ctx, t, r)
	}
}

func (s *Decider) settle(ctx context.Context, t *demand.Target, batch []*demand.Request) {
	ofSeveral := slices.ContainsFunc(batch, func(r *demand.Request) bool { return r.Prepare != store.EventID{} })
	if ofSeveral { // some are of calls of several demands
		rest, done := s.abortAll(ctx, t, batch)
		defer done()
		if batch = s.prepared.begin(t, rest, s.opts); len(batch) == 0 {
			return
		}
	}
	switch {
	case !t.Plan.Cell:
		s.counted.settle(ctx, t, batch)
	case !t.Plan.Behind || !s.settleInMemory(ctx, t, batch):
		s.serial.Settle(ctx, t, batch)
	}
	if ofSeveral {
		s.prepared.end(t.Key, batch)
	}
	s.doubt(t, batch)
}

// KnownFull denies c, where its policy goes by what this instance knows, if what the store said
// last leaves no room.
func (s *Decider) KnownFull(c *demand.Charge, now store.Instant) bool {
	if c.Plan.OnStoreError != policy.OnStoreErrorLocal || c.Op == count.OpRecord {
		return false
	}
	full := s.counted.denials
	if len(c.Plan.Parts) == 0 {
		known := full.AnswerAlone(&c.Decision, &c.Target, c.Cost, now)
		c.Decision.Remembered = false // the store was asked
		return known
	}
	for _, p := range c.Plan.Parts {
		of := part{Target: c.As(p), Request: new(demand.Request)}
		if full.AnswerAlone(&of.Decision, &of.Target, c.Cost, now) {
			c.Decision = count.Decision{}
			absorb(c, &of)
			c.Decision.Conclude()
			return true
		}
	}
	return false
}

// Run takes back what was counted and not admitted, and writes behind what was admitted from memory, until
// ctx ends. Then it does what is still to be done of that.
func (s *Decider) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.counted.takeBacks.Run(ctx) })
	all.Go(func() { s.counted.behind.run(ctx) })
	all.Wait()
}

// Holds returns nil if right Holds by a look that is no older than what is admitted by it may wait to be
// written.
func (s *Decider) Holds(ctx context.Context, right owner.Right) error {
	return s.counted.behind.holds(ctx, right)
}

// SteadyFor returns for how long, from now on, a request of t that was denied would be told the same;
// 0 if that is not known.
func (s *Decider) SteadyFor(t *demand.Target, right owner.Right, now store.Instant) time.Duration {
	return s.counted.owned.steadyFor(t, right, now)
}

// Commit says that what id has prepared for key stays.
func (s *Decider) Commit(key store.Key, id store.EventID) { s.prepared.commit(key, id) }

// UndoLater has undo repeated, which gives back what was prepared for c. Should the owner be gone, what can
// be told apart is taken out of the store all the same.
func (s *Decider) UndoLater(c *demand.Charge, undo func(context.Context) error) {
	s.counted.takeBacks.Push(totals.TakeBack{Abort: undo})
	if id := c.Decision.Entry.ID; id != (store.EventID{}) && len(c.Plan.Logs) > 0 {
		s.counted.takeBacks.Push(totals.TakeBack{Write: removal(&c.Target, []store.Event{{ID: id}})})
	}
}

// WasDenied reports whether key was over its limit when last seen, or full and is likely to be.
func (s *Decider) WasDenied(key store.Key) bool { return s.counted.wasDenied(key) }

// Saw notes whether there was room for key.
func (s *Decider) Saw(key store.Key, room bool) {
	if room {
		s.counted.denied.Remove(key)
	} else {
		s.counted.denied.Put(key, store.Distant)
	}
}

// Changed ends what is remembered of key: something was given back.
func (s *Decider) Changed(key store.Key) { s.counted.forgetDenial(key) }

// LastReset returns the latest reset of key that this instance has seen; 0: none.
func (s *Decider) LastReset(key store.Key) store.Instant {
	at, _ := s.counted.resets.Get(key)
	return at
}

// Remembered returns of how many keys all that is counted is Remembered, as their owner.
func (s *Decider) Remembered() int { return s.counted.owned.remembered() }

// ColdReads returns how many decisions were made as the owner of their key that had to read it from the store
// first, as nothing of it was remembered.
func (s *Decider) ColdReads() int64 { return s.counted.owned.cold.Load() }

// Behind returns how far the store is behind what was admitted.
func (s *Decider) Behind() Behind {
	b := s.counted.behind
	found := Behind{Waiting: int(b.keys.Load()), Written: b.written.Load(), Failed: b.failed.Load()}
	for i := range b.shards {
		found.Lag = max(found.Lag, b.shards[i].lag())
	}
	return found
}

// Flush writes what was admitted and is not written yet, until ctx ends.
func (s *Decider) Flush(ctx context.Context) { s.counted.behind.flush(ctx) }

// SettleEvent makes n's event stay, which was held, if t keeps events. It may ask whether one that is
// not there was removed.
func (s *Decider) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry, removed func() (bool, error)) error {
	parts := t.Plan.Parts
	if len(parts) == 0 {
		parts = []*demand.Plan{t.Plan}
	}
	for _, p := range parts {
		part := t.As(p)
		var err error
		switch {
		case p.Serial:
			err = s.serial.SettleEvent(ctx, &part, n, removed)
		case len(p.Logs) > 0:
			err = s.Store.Write(ctx, part.Settling(n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
