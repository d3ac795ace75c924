package counted

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// change is a change of a cell in memory: units were sent, or the units of an entry were given back or confirmed.
type change struct {
	at     store.Instant
	units  int64        // sent
	probes uint64       // see count.RuleSet.Probes
	back   *count.Entry // given back or confirmed; without a claim, it was aborted; nil: units were sent
}

// addChange adds c, of sent units, to p's changes if the plan has a conversion, and returns the number of added changes: it
// merges units that were sent within one block, unless units were given back or confirmed in between.
func (p *pendingDelta) addChange(plan *demand.Plan, c change) (more int) {
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

// replay makes p's changes in s, at now. Sent units and returned receipts keep the instants that they have in memory, so
// that the cell lists the same receipts.
func (p *pendingDelta) replay(plan *demand.Plan, s *store.State, now store.Instant) {
	for i := range p.changes {
		c := &p.changes[i]
		at := min(c.at, now)
		switch {
		case at <= s.Reset:
		case c.back == nil:
			plan.SendAgain(s, now, at, c.units, c.probes)
		case s.Reset < c.back.At && (c.back.Claimed == 0 || p.replayReceipt(s, c)):
			plan.GiveBack(s, c.back, now)
		}
	}
}

// replayReceipt adds c's receipt to those that s lists, and reports whether it was not among them. A cell lists fewer
// receipts than memory, and takes older ones for returned. But memory has accepted this one as new, so it is new for the
// cell as well, unless another instance has changed the cell, too.
func (p *pendingDelta) replayReceipt(s *store.State, c *change) (first bool) {
	claimed := c.back.Claimed
	if !p.mixed {
		claimed = max(claimed, s.Applied.Since+1)
	}
	return s.Applied.Note(c.back.ID, claimed, c.at, store.MaxApplied)
}

// giveBackInFlight is GiveBackUnder for a key with a cell. It runs while no batch of the key is in progress.
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

// giveBackInMemory is GiveBackUnder for a key whose state, k, is in memory.
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
	c.behind.addBack(t, k, at, e) // before Note, as in decideOwned
	if err := k.term.Note(t.Key, t.Plan.Life); err != nil {
		c.owned.forget(t.Key)
		return store.Unavailable(err)
	}
	c.denials.Forget(t.Key)
	return nil
}

// giveBack gives back or confirms e's units in k, at now or, if that is later, right after the latest reset. first is false,
// and nothing changes, if a reset has removed the units, or if e is claimed and its receipt was returned before.
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

// addBack queues the change of e, which was given back or confirmed in k at an instant, to be written.
func (b *behind) addBack(t *demand.Target, k *keyState, at store.Instant, e *count.Entry) {
	sh := b.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p := b.waitingFor(sh, t).pendingIn(k, at)
	back := *e
	p.changes = append(p.changes, change{at: at, back: &back})
	b.events.Add(1)
}
