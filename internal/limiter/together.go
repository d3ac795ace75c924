package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// part is what is decided in one step for one of several charges that stand or fall
// together: a charge has two when its policy has limits of both kinds.
type part struct {
	target
	*request
	of  int    // index of the charge
	own *units // what is written for it: nil when nothing is, or it is in a cell

	unconfirmed bool // its events are held only for as long as the others are asked
}

// decideAll decides charges, all or none of them, and fills in their decisions and
// errors: write all, read all, and take back all if one denies. Logs are held
// meanwhile, so that what a process that dies in between has written frees itself;
// what is in counters or cells stays charged then until its window ends.
//
// The keys are led in one order by all callers of this process, so that none of them
// meets another half way.
func (s *shared) decideAll(ctx context.Context, charges []charge) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
	defer cancel()
	parts := partsOf(charges)
	if charges[0].op == count.OpCheck {
		each(parts, func(p *part) { s.check(ctx, &p.target, p.request) })
	} else {
		for i := range parts {
			parts[i].holdBack(charges, s.opts)
		}
		asked := false
		s.leadAll(ctx, slices.Clone(parts), func(ctx context.Context) { asked = true; s.settleAll(ctx, charges, parts) })
		if !asked {
			failUnasked(parts)
		}
	}
	conclude(charges, parts)
}

func partsOf(charges []charge) []*part {
	var parts []*part
	for i := range charges {
		c := &charges[i]
		r := request{op: c.op, cost: c.cost, hold: c.hold, id: c.id, alone: true, under: c.plan}
		if len(c.plan.parts) == 0 {
			parts = append(parts, &part{target: c.target, request: &r, of: i})
			continue
		}
		for _, of := range c.plan.parts {
			own := r
			parts = append(parts, &part{target: c.as(of), request: &own, of: i})
		}
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return a.key.Compare(b.key) })
	return parts
}

// holdBack makes p a hold while it is not known whether the others admit, if it is a
// take from logs and there are others.
func (p *part) holdBack(charges []charge, o *Options) {
	others := len(charges) > 1 || len(charges[p.of].plan.parts) > 0
	if others && p.op.MayDeny() && p.hold == 0 && !p.plan.Cell && len(p.plan.Logs) > 0 {
		p.hold, p.unconfirmed = confirmWithin*o.StoreTimeout, true
	}
}

// confirmWithin is how many store timeouts an unconfirmed hold counts: writing,
// reading and confirming end within one, by the clock that dated it.
const confirmWithin = 2

// leadAll calls do while it leads the flights of all parts, in their order. A part
// whose turn does not come in time fails, and do is not called.
func (s *shared) leadAll(ctx context.Context, parts []*part, do func(context.Context)) {
	if len(parts) == 0 {
		do(ctx)
		return
	}
	p := parts[0]
	s.flights.join(ctx, p.key, p.request, s.opts.StoreTimeout, func(ctx context.Context, _ []*request) {
		s.leadAll(ctx, parts[1:], do)
	})
}

// failUnasked fails all parts with the one whose turn did not come: nobody was asked.
func failUnasked(parts []*part) {
	at := slices.IndexFunc(parts, func(p *part) bool { return p.err != nil })
	for _, p := range parts {
		p.err = parts[at].err
	}
}

// settleAll answers every part of charges.
func (s *shared) settleAll(ctx context.Context, charges []charge, parts []*part) {
	toPlace := s.foresee(ctx, charges, parts)
	if len(toPlace) == 0 {
		return
	}
	for _, p := range toPlace {
		charges[p.of].placed = charges[p.of].placed || len(p.plan.Logs) > 0 && !p.plan.Cell
	}
	each(toPlace, func(p *part) { s.place(ctx, p) })
	keep := keeps(charges, parts)
	var confirm, undo []*part
	for _, p := range parts {
		switch {
		case p.err != nil || p.decision.Recorded != count.RecordedYes:
		case !keep[p.of]:
			undo = append(undo, p)
		case p.unconfirmed:
			confirm = append(confirm, p)
		}
	}
	if err := s.confirm(ctx, confirm); err != nil {
		s.abandon(parts, err)
		return
	}
	each(undo, func(p *part) { s.undo(ctx, p) })
}

// foresee answers, without writing anything, the parts of charges that what is counted
// already leaves no room for, and returns the others. It asks only where that may save
// writes: each that is taken back stays as a tombstone in its log.
func (s *shared) foresee(ctx context.Context, charges []charge, parts []*part) (rest []*part) {
	if !slices.ContainsFunc(parts, s.wary) {
		return parts
	}
	each(parts, func(p *part) {
		probe := request{op: count.OpCheck, cost: p.cost}
		s.check(ctx, &p.target, &probe)
		p.decision, p.err = probe.decision, probe.err
	})
	keep := keeps(charges, parts)
	for _, p := range parts {
		if keep[p.of] {
			p.decision, p.err = count.Decision{}, nil
			rest = append(rest, p)
		}
	}
	if len(rest) == len(parts) {
		for _, p := range parts {
			s.counted.denied.Remove(p.key)
		}
	}
	return rest
}

// wary reports whether p may well be denied, or deny others for as long as it is
// written.
func (s *shared) wary(p *part) bool {
	if p.plan.Cell || !p.op.MayDeny() || p.plan.Count == policy.CountAll && p.op == count.OpTake {
		return false
	}
	return p.cost > 1 || s.counted.wasDenied(p.key)
}

// place writes and judges p as if it were alone.
func (s *shared) place(ctx context.Context, p *part) {
	batch := []*request{p.request}
	if p.plan.Cell {
		s.serial.settle(ctx, &p.target, batch)
		return
	}
	own, state, ok := s.counted.place(ctx, &p.target, batch)
	if !ok {
		return
	}
	refused, _ := s.counted.judge(&p.target, own, &state)
	s.counted.denials.keepFull(&p.target, &state, own.now, own.mark)
	if refused.any() {
		s.counted.takeBack(ctx, &p.target, refused)
		s.counted.denied.Put(p.key, store.Distant)
		return
	}
	p.own = own
}

// keeps says for each charge whether what was counted for it stays: when it fits and
// no other blocks the call, or where denied attempts count.
func keeps(charges []charge, parts []*part) []bool {
	fits, blocked := make([]bool, len(charges)), false
	if slices.ContainsFunc(parts, func(p *part) bool { return tooEarly(p.err) }) {
		return fits // all of it is decided anew, under other ids
	}
	for i := range fits {
		fits[i] = true
	}
	for _, p := range parts {
		if !p.op.MayDeny() {
			continue
		}
		if p.err != nil && p.plan.onFailure() == policy.OnStoreErrorDeny || p.err == nil && !p.decision.WouldAllow {
			fits[p.of] = false
			blocked = blocked || p.plan.Mode == policy.ModeEnforce
		}
	}
	for i := range charges {
		c := &charges[i]
		fits[i] = fits[i] && !blocked || c.op == count.OpRecord || c.op == count.OpTake && c.plan.Count == policy.CountAll
	}
	return fits
}

// onFailure returns what the policy does when the store fails; in shadow mode it
// allows.
func (p *plan) onFailure() policy.OnStoreError {
	if p.Mode == policy.ModeShadow {
		return policy.OnStoreErrorAllow
	}
	return p.OnStoreError
}

// confirm makes held events stay, all of them or none. Later than their holds count by
// every clock, somebody else may have their place.
func (s *shared) confirm(ctx context.Context, parts []*part) error {
	var writes []store.Write
	for _, p := range parts {
		w := store.Write{Key: p.key, Level: p.plan.Consistency.Write, Logs: p.plan.logWrites, Settle: true}
		for _, e := range p.own.events {
			e.Ends = 0
			w.Events = append(w.Events, e)
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return nil
	}
	if err := s.store.WriteAll(ctx, writes); err != nil {
		return err
	}
	if ctx.Err() != nil { // it began before the holds did and lasts half as long
		return fmt.Errorf("%w: holds were confirmed too late: %w", store.ErrUnavailable, ctx.Err())
	}
	return nil
}

// abandon fails the parts that were to stay when it is unknown whether their holds
// were confirmed. What can be taken back is: a removal is the later word.
func (s *shared) abandon(parts []*part, err error) {
	for _, p := range parts {
		if p.err != nil || p.decision.Recorded != count.RecordedYes {
			continue
		}
		p.err = &StoreError{Recorded: count.RecordedUnknown, Err: err}
		if p.own != nil {
			s.counted.forget(&p.target, p.own, count.RecordedYes)
			s.counted.denials.forget(p.key)
		}
	}
}

// undo gives back what was counted for p, whose units are not admitted.
func (s *shared) undo(ctx context.Context, p *part) {
	counted := p.decision.Entry
	p.decision = p.without
	if p.own != nil {
		s.counted.takeBack(ctx, &p.target, p.own)
		s.counted.denials.forget(p.key)
		return
	}
	if err := s.serial.giveBack(ctx, &p.target, &counted, true); err != nil {
		p.decision.Recorded = count.RecordedUnknown
	}
}

// conclude puts the parts' answers together. A charge fails with any of its parts.
func conclude(charges []charge, parts []*part) {
	for _, p := range parts {
		c := &charges[p.of]
		c.err = errors.Join(c.err, p.err)
		if len(c.plan.parts) == 0 {
			c.decision = p.decision
		} else if p.err == nil {
			c.absorb(p)
		}
	}
	for i := range charges {
		switch c := &charges[i]; {
		case len(c.plan.parts) == 0 || tooEarly(c.err):
		case c.err == nil:
			c.decision.Conclude()
		default:
			c.err = &StoreError{Recorded: recordedOfParts(parts, i), Err: c.err}
		}
	}
}

// absorb puts the answer of p, a part of c, into its place.
func (c *charge) absorb(p *part) {
	d := &c.decision
	if d.Policy == nil {
		*d = c.plan.Unasked()
		d.Recorded = p.decision.Recorded
	}
	for j, at := range p.plan.limit {
		d.Limits()[at].Verdict = p.decision.Limits()[j].Verdict
	}
	if p.decision.Recorded != count.RecordedYes {
		d.Recorded = p.decision.Recorded
	}
	if !p.plan.Cell || d.Entry == (count.Entry{}) { // a bucket is given back without an id
		d.Entry = p.decision.Entry
	}
}

// each calls do for all parts at the same time and waits for them.
func each(parts []*part, do func(*part)) {
	if len(parts) == 1 {
		do(parts[0])
		return
	}
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() { do(p) })
	}
	all.Wait()
}

// recordedOfParts returns what became of the units of a charge of which a part failed:
// unknown unless all parts say the same.
func recordedOfParts(parts []*part, charge int) (all count.Recorded) {
	for _, p := range parts {
		if p.of != charge {
			continue
		}
		said := p.decision.Recorded
		if failed := (*StoreError)(nil); errors.As(p.err, &failed) {
			said = failed.Recorded
		}
		if all != "" && all != said {
			return count.RecordedUnknown
		}
		all = said
	}
	return all
}
