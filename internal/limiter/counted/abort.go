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

// without returns a copy of k's state at now, without the units of entries.
func (k *keyState) without(entries []count.Entry, now store.Instant) *store.State {
	known := k.open()
	defer k.close(known)
	s := &store.State{Reset: known.Reset, Counts: slices.Clone(known.Counts), Logs: make([]store.Log, len(known.Logs))}
	for i := range s.Logs {
		s.Logs[i] = store.Log{Events: slices.Clone(known.Logs[i].Events)}
	}
	if k.inCell == nil {
		k.plan.TakeOut(s, entries)
		return s
	}
	s.Conversions = slices.Clone(known.Conversions)
	for i := range entries {
		k.plan.GiveBack(s, &entries[i], max(now, s.Reset+1))
	}
	return s
}

// checkWithoutPrepared decides c again, a check that was denied while calls of several demands had prepared units for its
// key. It leaves out the units of these calls, which may yet be given back. It first waits for commits that may be on
// their way.
func (s *Decider) checkWithoutPrepared(ctx context.Context, c *demand.Charge) {
	for until := time.Now().Add(retryWithin); ; {
		if _, fewer := s.prepared.Of(c.Key); fewer == nil || s.prepared.Wait(ctx, fewer, time.Until(until), s.opts) != nil {
			break
		}
	}
	_ = s.alone(ctx, c.Key, func(ctx context.Context) error { // after an error, c stays denied
		entries, _ := s.prepared.Of(c.Key)
		k, now := s.counted.owned.lookup(&c.Target, c.Term), s.opts.Timing.Instant()
		if k == nil || s.opts.Timing.IsSetBack(k.latest, now) {
			s.check(ctx, c)
			return nil
		}
		without := k.without(entries, now)
		at := max(now, without.Reset+1)
		c.Plan.Decide(&c.Decision, without, count.OpCheck, store.EventID{}, at, c.Cost)
		c.Decision.Postpone(at.Sub(now))
		return nil
	})
}

// Abort gives back, once, the units that are prepared for key under id. It is safe to repeat.
func (s *Decider) Abort(ctx context.Context, key store.Key, id store.EventID) error {
	t, term, ok := s.prepared.Aborts(key, id, s.opts)
	if !ok {
		return nil
	}
	c := &demand.Charge{Target: t, Op: owner.OpAbort, Prepare: id, Term: term}
	s.flights.joinOrLeave(ctx, c, count.RecordedUnknown)
	return c.Err
}

// abortAll does the aborts of batch. It returns the other requests, which may be decided at once by the key's state in
// memory, without the aborted units, and a function that waits until the store has removed these. If the state was dropped
// meanwhile, that function drops what was read in its place, which may have the aborted units.
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
		storing.Wait() // a read before that would return the aborted units
	}
	for _, id := range ids {
		s.prepared.Commit(t.Key, id)
	}
	return rest, func() {
		storing.Wait()
		if k != nil && s.counted.owned.lookup(t, k.term) != k {
			s.counted.owned.change(t.Key)
		}
	}
}

// giveBackPrepared gives back e's units, which are counted in t's cell: in memory, if the key's state is there, and the
// change is written behind; or else in the store. After a failure it may be repeated.
func (s *Decider) giveBackPrepared(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	c := s.counted
	c.denials.Forget(t.Key)
	if k := c.owned.lookup(t, term); k != nil {
		if at, first := k.giveBack(s.opts.Timing.Instant(), e); first {
			c.behind.addBack(t, k, at, e)
		}
		return nil
	}
	if err := c.behind.writeKey(ctx, t.Key); err != nil { // units that are not stored yet can't be removed
		return err
	}
	e.Claimed = e.At // so the cell lists e, and a repetition changes nothing
	return s.serial.GiveBack(ctx, t, e)
}

// failAborts fails the aborts of batch, which were not done. Their callers repeat them.
func failAborts(batch []*demand.Charge, err error) {
	for _, r := range batch {
		if r.Op == owner.OpAbort {
			r.Err = &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
}

// takeOut removes units from the state of t under term, and returns it, or nil if memory has no state of t then.
func (o *owned) takeOut(t *demand.Target, term owner.Term, units []count.Entry) *keyState {
	k := o.lookup(t, term)
	if k == nil || !k.takeOut(units) {
		o.change(t.Key)
		return nil
	}
	return k
}

// takeOut removes units from k. It returns false, and changes nothing, if k might then be incomplete: a log that was read
// up to its limit may lack older events, which count once others are removed.
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

// giveAllBack removes the units of gone, which were counted for t, from the store, as takeBack does.
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
