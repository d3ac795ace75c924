package counted

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// without returns a copy of k's state at now without the units of in.
func (k *keyState) without(in []count.Entry, now store.Instant) *store.State {
	known := k.open()
	defer k.close(known)
	s := &store.State{Reset: known.Reset, Counts: slices.Clone(known.Counts), Logs: make([]store.Log, len(known.Logs))}
	for i := range s.Logs {
		s.Logs[i] = store.Log{Events: slices.Clone(known.Logs[i].Events)}
	}
	if k.inCell == nil {
		k.plan.TakeOut(s, in)
		return s
	}
	s.Conversions = slices.Clone(known.Conversions)
	for i := range in {
		k.plan.GiveBack(s, &in[i], max(now, s.Reset+1))
	}
	return s
}

// checkBeside decides c again, a check that was denied for a key that this instance owns while calls of several demands
// are in progress: by the units that count whether these calls commit or abort. It first waits for commits, which may be
// on their way.
func (s *Decider) checkBeside(ctx context.Context, c *demand.Charge) {
	for until := time.Now().Add(retryWithin); ; {
		if _, fewer := s.prepared.Of(c.Key); fewer == nil || s.prepared.Wait(ctx, fewer, time.Until(until), s.opts) != nil {
			break
		}
	}
	_ = s.alone(ctx, c.Key, func(ctx context.Context) error { // else it stays denied
		in, _ := s.prepared.Of(c.Key)
		k, now := s.counted.owned.of(&c.Target, c.Term), s.opts.Timing.Instant()
		if k == nil || s.opts.Timing.IsSetBack(k.latest, now) {
			s.check(ctx, c)
			return nil
		}
		without := k.without(in, now)
		at := max(now, without.Reset+1)
		c.Plan.Decide(&c.Decision, without, count.OpCheck, store.EventID{}, at, c.Cost)
		c.Decision.Postpone(at.Sub(now))
		return nil
	})
}

// Abort gives back what id has prepared for key, once. It is safe to repeat.
func (s *Decider) Abort(ctx context.Context, key store.Key, id store.EventID) error {
	t, term, ok := s.prepared.Aborts(key, id, s.opts)
	if !ok {
		return nil
	}
	c := &demand.Charge{Target: t, Op: owner.OpAbort, Prepare: id, Term: term}
	s.flights.joinOrLeave(ctx, c, count.RecordedUnknown)
	return c.Err
}

// abortAll does the aborts of batch. It returns the other requests, and a function that waits until all aborts are
// done. It changes memory first, which must not lose a unit that is read again. A state that is read while the store
// still has the units is not remembered.
func (s *Decider) abortAll(ctx context.Context, t *demand.Target, batch []*demand.Charge) (rest []*demand.Charge, done func()) {
	var ids []store.EventID
	var gone []count.Entry
	for _, r := range batch {
		e, ok := s.prepared.Counted(t.Key, r.Prepare)
		switch {
		case r.Op != owner.OpAbort:
			rest = append(rest, r)
		case !ok:
		case !t.Plan.Cell:
			ids, gone = append(ids, r.Prepare), append(gone, e)
		default:
			if err := s.giveBackPrepared(ctx, t, r.Term, &e); err != nil {
				failAborts([]*demand.Charge{r}, err)
			} else {
				s.prepared.Commit(t.Key, r.Prepare)
			}
		}
	}
	if len(gone) == 0 {
		return rest, func() {}
	}
	if err := s.counted.behind.writeKey(ctx, t.Key); err != nil { // units that are not stored yet can't be removed
		failAborts(batch, err)
		return rest, func() {}
	}
	var storing sync.WaitGroup
	storing.Go(func() { s.giveAllBack(ctx, t, gone) })
	k := s.counted.owned.takeOut(t, batch[0].Term, gone)
	if k == nil {
		storing.Wait() // else the next read returns aborted units
	}
	for _, id := range ids {
		s.prepared.Commit(t.Key, id)
	}
	return rest, func() {
		storing.Wait()
		if k != nil && s.counted.owned.of(t, k.term) != k {
			s.counted.owned.change(t.Key)
		}
	}
}

// giveBackPrepared gives back e's units, which t's conversions have counted: in memory, which is written behind, or else in
// the cell. After a failure it may be repeated.
func (s *Decider) giveBackPrepared(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	c := s.counted
	c.denials.Forget(t.Key)
	if k := c.owned.of(t, term); k != nil {
		if at, first := k.giveBack(s.opts.Timing.Instant(), e); first {
			c.behind.addBack(t, k, at, e)
		}
		return nil
	}
	if err := c.behind.writeKey(ctx, t.Key); err != nil { // units that are not stored yet can't be removed
		return err
	}
	e.Claimed = e.At // by this the cell shows whether an earlier attempt was stored
	return s.serial.GiveBack(ctx, t, e)
}

// failAborts fails the aborts of batch, which were not done: they are safe to repeat.
func failAborts(batch []*demand.Charge, err error) {
	for _, r := range batch {
		if r.Op == owner.OpAbort {
			r.Err = &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
}

// takeOut removes units from what is known of t under term, and returns the rest, nil if t is not known any more.
func (o *owned) takeOut(t *demand.Target, term owner.Term, units []count.Entry) *keyState {
	k := o.of(t, term)
	if k == nil || !k.takeOut(units) {
		o.change(t.Key)
		return nil
	}
	return k
}

// takeOut removes units from k. It returns false if k may be incomplete then: a log that was read up to its limit may
// lack older events, which count once others are removed.
func (k *keyState) takeOut(units []count.Entry) bool {
	s := k.open()
	defer k.close(s)
	for i := range s.Logs {
		if log := &k.plan.Logs[i]; len(s.Logs[i].Events) >= log.Limit+log.Beyond {
			return false
		}
	}
	k.plan.TakeOut(s, units)
	return true
}

// giveAllBack removes t's units from the store, in one step if possible. It repeats writes that fail if that can't
// count twice.
func (s *Decider) giveAllBack(ctx context.Context, t *demand.Target, gone []count.Entry) {
	own := &units{}
	var sums store.State
	for i := range gone {
		e := &gone[i]
		own.events = append(own.events, store.Event{ID: e.ID})
		for _, c := range t.Plan.AppendCounts(nil, e.Epoch, e.At, e.Cost) {
			sums.Add(c)
		}
	}
	own.counts = sums.Counts
	s.counted.takeBack(ctx, t, own)
	s.counted.denials.Forget(t.Key)
}
