package counted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// part is what is decided in one step for one of several charges that stand or fall
// together: a charge has two when its policy has limits of both kinds.
type part struct {
	demand.Target
	*demand.Request
	of  int    // index of the charge
	own *units // what is written for it: nil when nothing is, or it is in a cell

	unconfirmed bool // its events are held only for as long as the others are asked
}

// DecideAll decides charges, all or none of them, and fills in their decisions and
// errors: write all, read all, and take back all if one denies. Logs are held
// meanwhile, so that what a process that dies in between has written frees itself;
// what is in counters or cells stays charged then until its window ends.
//
// The keys are led in one order by all callers of this process, so that none of them
// meets another half way.
func (s *Decider) DecideAll(ctx context.Context, charges []demand.Charge) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
	defer cancel()
	parts := partsOf(charges)
	if charges[0].Op == count.OpCheck {
		each(parts, func(p *part) { s.check(ctx, &p.Target, p.Request) })
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

func partsOf(charges []demand.Charge) []*part {
	var parts []*part
	for i := range charges {
		c := &charges[i]
		r := demand.Request{Op: c.Op, Cost: c.Cost, Hold: c.Hold, ID: c.ID, Alone: true, Under: c.Plan}
		if len(c.Plan.Parts) == 0 {
			parts = append(parts, &part{Target: c.Target, Request: &r, of: i})
			continue
		}
		for _, of := range c.Plan.Parts {
			own := r
			parts = append(parts, &part{Target: c.As(of), Request: &own, of: i})
		}
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return a.Key.Compare(b.Key) })
	return parts
}

// holdBack makes p a hold while it is not known whether the others admit, if it is a
// take from logs and there are others.
func (p *part) holdBack(charges []demand.Charge, o *demand.Settings) {
	others := len(charges) > 1 || len(charges[p.of].Plan.Parts) > 0
	if others && p.Op.MayDeny() && p.Hold == 0 && !p.Plan.Cell && len(p.Plan.Logs) > 0 {
		p.Hold, p.unconfirmed = confirmWithin*o.StoreTimeout, true
	}
}

// confirmWithin is how many store timeouts an unconfirmed hold counts: writing,
// reading and confirming end within one, by the clock that dated it.
const confirmWithin = 2

// leadAll calls do while it leads the flights of all parts, in their order. A part
// whose turn does not come in time fails, and do is not called.
func (s *Decider) leadAll(ctx context.Context, parts []*part, do func(context.Context)) {
	if len(parts) == 0 {
		do(ctx)
		return
	}
	p := parts[0]
	s.flights.join(ctx, p.Key, p.Request, s.opts.StoreTimeout, func(ctx context.Context, _ []*demand.Request) {
		s.leadAll(ctx, parts[1:], do)
	})
}

// failUnasked fails all parts with the one whose turn did not come: nobody was asked.
func failUnasked(parts []*part) {
	at := slices.IndexFunc(parts, func(p *part) bool { return p.Err != nil })
	for _, p := range parts {
		p.Err = parts[at].Err
	}
}

// settleAll answers every part of charges.
func (s *Decider) settleAll(ctx context.Context, charges []demand.Charge, parts []*part) {
	toPlace := s.foresee(ctx, charges, parts)
	if len(toPlace) == 0 {
		return
	}
	for _, p := range toPlace {
		charges[p.of].Placed = charges[p.of].Placed || len(p.Plan.Logs) > 0 && !p.Plan.Cell
	}
	each(toPlace, func(p *part) { s.place(ctx, p) })
	keep := keeps(charges, parts)
	var confirm, undo []*part
	for _, p := range parts {
		switch {
		case p.Err != nil || p.Decision.Recorded != count.RecordedYes:
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
func (s *Decider) foresee(ctx context.Context, charges []demand.Charge, parts []*part) (rest []*part) {
	if !slices.ContainsFunc(parts, s.wary) {
		return parts
	}
	each(parts, func(p *part) {
		probe := demand.Request{Op: count.OpCheck, Cost: p.Cost}
		s.check(ctx, &p.Target, &probe)
		p.Decision, p.Err = probe.Decision, probe.Err
	})
	keep := keeps(charges, parts)
	for _, p := range parts {
		if keep[p.of] {
			p.Decision, p.Err = count.Decision{}, nil
			rest = append(rest, p)
		}
	}
	if len(rest) == len(parts) {
		for _, p := range parts {
			s.counted.denied.Remove(p.Key)
		}
	}
	return rest
}

// wary reports whether p may well be denied, or deny others for as long as it is
// written.
func (s *Decider) wary(p *part) bool {
	if p.Plan.Cell || !p.Op.MayDeny() || p.Plan.Count == policy.CountAll && p.Op == count.OpTake {
		return false
	}
	return p.Cost > 1 || s.counted.wasDenied(p.Key)
}

// place writes and judges p as if it were alone.
func (s *Decider) place(ctx context.Context, p *part) {
	batch := []*demand.Request{p.Request}
	if p.Plan.Cell {
		s.serial.Settle(ctx, &p.Target, batch)
		return
	}
	own, state, ok := s.counted.place(ctx, &p.Target, batch)
	if !ok {
		return
	}
	refused, _ := s.counted.judge(&p.Target, own, &state)
	s.counted.denials.KeepFull(&p.Target, &state, own.now, own.mark)
	if len(refused.batch) > 0 {
		s.counted.takeBack(ctx, &p.Target, refused)
		s.counted.denied.Put(p.Key, store.Distant)
		return
	}
	p.own = own
}

// keeps says for each charge whether what was counted for it stays: when it fits and
// no other blocks the call, or where denied attempts count.
func keeps(charges []demand.Charge, parts []*part) []bool {
	fits, blocked := make([]bool, len(charges)), false
	if slices.ContainsFunc(parts, func(p *part) bool { return demand.TooEarly(p.Err) }) {
		return fits // all of it is decided anew, under other ids
	}
	for i := range fits {
		fits[i] = true
	}
	for _, p := range parts {
		if !p.Op.MayDeny() {
			continue
		}
		if p.Err != nil && p.Plan.OnFailure() == policy.OnStoreErrorDeny || p.Err == nil && !p.Decision.WouldAllow {
			fits[p.of] = false
			blocked = blocked || p.Plan.Mode == policy.ModeEnforce
		}
	}
	for i := range charges {
		c := &charges[i]
		fits[i] = fits[i] && !blocked || c.Op == count.OpRecord || c.Op == count.OpTake && c.Plan.Count == policy.CountAll
	}
	return fits
}

// confirm makes held events stay, all of them or none. Later than their holds count by
// every clock, somebody else may have their place.
func (s *Decider) confirm(ctx context.Context, parts []*part) error {
	var writes []store.Write
	for _, p := range parts {
		w := store.Write{Key: p.Key, Level: p.Plan.Consistency.Write, Logs: p.Plan.LogWrites, Settle: true}
		for _, e := range p.own.events {
			e.Ends = 0
			w.Events = append(w.Events, e)
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return nil
	}
	if err := s.Store.WriteAll(ctx, writes); err != nil {
		return err
	}
	if ctx.Err() != nil { // it began before the holds did and lasts half as long
		return fmt.Errorf("%w: holds were confirmed too late: %w", store.ErrUnavailable, ctx.Err())
	}
	return nil
}

// abandon fails the parts that were to stay when it is unknown whether their holds
// were confirmed. What can be taken back is: a removal is the later word.
func (s *Decider) abandon(parts []*part, err error) {
	for _, p := range parts {
		if p.Err != nil || p.Decision.Recorded != count.RecordedYes {
			continue
		}
		p.Err = &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
		if p.own != nil {
			s.counted.forget(&p.Target, p.own, count.RecordedYes)
			s.counted.denials.Forget(p.Key)
		}
	}
}

// undo gives back what was counted for p, whose units are not admitted.
func (s *Decider) undo(ctx context.Context, p *part) {
	counted := p.Decision.Entry
	p.Decision = p.Without
	if p.own != nil {
		s.counted.takeBack(ctx, &p.Target, p.own)
		s.counted.denials.Forget(p.Key)
		return
	}
	if err := s.serial.GiveBack(ctx, &p.Target, &counted, true); err != nil {
		p.Decision.Recorded = count.RecordedUnknown
	}
}

// conclude puts the parts' answers together. A charge fails with any of its parts.
func conclude(charges []demand.Charge, parts []*part) {
	for _, p := range parts {
		c := &charges[p.of]
		c.Err = errors.Join(c.Err, p.Err)
		if len(c.Plan.Parts) == 0 {
			c.Decision = p.Decision
		} else if p.Err == nil {
			absorb(c, p)
		}
	}
	for i := range charges {
		switch c := &charges[i]; {
		case len(c.Plan.Parts) == 0 || demand.TooEarly(c.Err):
		case c.Err == nil:
			c.Decision.Conclude()
		default:
			c.Err = &count.StoreError{Recorded: recordedOfParts(parts, i), Err: c.Err}
		}
	}
}

// absorb puts the answer of p, a part of c, into its place.
func absorb(c *demand.Charge, p *part) {
	d := &c.Decision
	if d.Policy == nil {
		*d = c.Plan.Unasked()
		d.Recorded = p.Decision.Recorded
	}
	for j, at := range p.Plan.Places {
		d.Limits()[at].Verdict = p.Decision.Limits()[j].Verdict
	}
	if p.Decision.Recorded != count.RecordedYes {
		d.Recorded = p.Decision.Recorded
	}
	if !p.Plan.Cell || d.Entry == (count.Entry{}) { // a bucket is given back without an id
		d.Entry = p.Decision.Entry
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
		said := p.Decision.Recorded
		if failed := (*count.StoreError)(nil); errors.As(p.Err, &failed) {
			said = failed.Recorded
		}
		if all != "" && all != said {
			return count.RecordedUnknown
		}
		all = said
	}
	return all
}
