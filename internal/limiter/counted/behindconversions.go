package counted

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// change is a change of a key's conversions in memory: units were sent, or a receipt was returned.
type change struct {
	at     store.Instant
	units  int64        // sent
	probes uint64       // see count.RuleSet.Probes
	back   *count.Entry // the entry that was given back, confirmed or, if it is not claimed, aborted; nil: units were sent
}

// send notes c, and returns by how many the waiting changes grew. Units sent within one block are one change, unless a
// receipt was returned in between.
func (p *pendingDelta) send(plan *demand.Plan, c change) (more int) {
	if !plan.Cell || !plan.HasConversion() {
		return 0
	}
	if n := len(p.changes); n > 0 {
		last := &p.changes[n-1]
		if last.back == nil && last.at <= c.at && plan.InOneBlock(last.at, c.at) {
			last.at, last.units, last.probes = c.at, store.AddSaturating(last.units, c.units), c.probes
			return 0
		}
	}
	p.changes = append(p.changes, c)
	return 1
}

// changeAgain repeats p's changes on the conversions of s, at now. It uses the changes' own times, also for receipts,
// so that the cell lists the same receipts as memory.
func (p *pendingDelta) changeAgain(plan *demand.Plan, s *store.State, now store.Instant) {
	for i := range p.changes {
		c := &p.changes[i]
		at := min(c.at, now)
		switch {
		case at <= s.Reset:
		case c.back == nil:
			plan.SendAgain(s, now, at, c.units, c.probes)
		case s.Reset < c.back.At && (c.back.Claimed == 0 || p.noteAgain(s, c)):
			plan.GiveBack(s, c.back, now)
		}
	}
}

// noteAgain notes c's receipt in the cell s, and reports whether it was returned for the first time. Memory keeps more
// receipts than a cell: unless other instances changed the cell, too, a receipt that was new to memory is not too old for
// the cell.
func (p *pendingDelta) noteAgain(s *store.State, c *change) (first bool) {
	claimed := c.back.Claimed
	if !p.mixed {
		claimed = max(claimed, s.Applied.Since+1)
	}
	return s.Applied.Note(c.back.ID, claimed, c.at, store.MaxApplied)
}

// giveBackInFlight is GiveBackUnder for t, whose limits are in a cell, or in memory and written to it.
func (s *Decider) giveBackInFlight(ctx context.Context, t *demand.Target, term owner.Term, e *count.Entry) error {
	k, err := s.counted.known(ctx, t, []*demand.Charge{{Target: *t, Op: count.OpRecord, Term: term}})
	switch {
	case err != nil:
		return err
	case k != nil:
		return s.giveBackInMemory(t, k, e)
	case t.Plan.Behind:
		if err := s.counted.flushKey(ctx, t, term); err != nil {
			return err
		}
	}
	return s.serial.GiveBack(ctx, t, e)
}

// giveBackInMemory is GiveBackUnder by what is known of t.
func (s *Decider) giveBackInMemory(t *demand.Target, k *keyState, e *count.Entry) error {
	c := s.counted
	now, err := s.opts.Timing.Checked()
	if err != nil {
		return err
	}
	at, first := k.giveBack(now, e)
	if !first {
		return nil
	}
	c.behind.addBack(t, k, at, e) // before Note, as for admitted units
	if err := k.term.Note(t.Key, t.Plan.Life); err != nil {
		c.owned.forget(t.Key)
		return store.Unavailable(err)
	}
	c.denials.Forget(t.Key)
	return nil
}

// giveBack gives back e's units at now, or right after a later reset. It reports whether it did so: not if a reset has
// removed the units or, with a claim, if they were given back before.
func (k *keyState) giveBack(now store.Instant, e *count.Entry) (at store.Instant, first bool) {
	s := k.open()
	defer k.close(s)
	at = max(now, s.Reset+1)
	if s.Reset >= e.At || e.Claimed > 0 && !s.Applied.Note(e.ID, e.Claimed, at, store.MaxAppliedInMemory) {
		return at, false
	}
	k.plan.GiveBack(s, e, at)
	k.latest = max(k.latest, now)
	return at, true
}

// addBack queues e, which was given back in k at an instant, to be written.
func (b *behind) addBack(t *demand.Target, k *keyState, at store.Instant, e *count.Entry) {
	sh := b.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p := b.waitingFor(sh, t).into(k, at)
	back := *e
	p.changes = append(p.changes, change{at: at, back: &back})
	b.events.Add(1)
}
