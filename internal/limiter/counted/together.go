package counted

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// part is one of several charges that are allowed or denied together.
type part struct {
	demand.Target
	*demand.Request
	of  int    // index of the charge
	own *units // the units written for it; nil if there are none, or they are in a cell

	unconfirmed bool // its events are held until all parts are decided
}

// DecideAll decides charges, all or none of them, and fills in their decisions and errors: it writes all, reads all,
// and takes all back if one denies. Events are holds meanwhile, so that they end by themselves if the process dies in
// between; units in counters or cells then count until their window ends.
//
// All callers of this process lead the flights of keys in the same order, so that they can't deadlock.
func (s *Decider) DecideAll(ctx context.Context, charges []demand.Charge) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StoreTimeout)
	defer cancel()
	parts := partsOf(charges)
	if charges[0].Op == count.OpCheck {
		each(parts, func(p *part) { s.check(ctx, &p.Target, p.Request) })
	} else {
		for i := range parts {
			parts[i].holdBack(parts, s.opts)
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
		parts = append(parts, &part{Target: c.Target, Request: &r, of: i})
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return a.Key.Compare(b.Key) })
	return parts
}

// holdBack makes p a hold until the others of parts are decided, if it is a take from logs and there are others.
func (p *part) holdBack(parts []*part, o *demand.Settings) {
	if len(parts) > 1 && p.Op.MayDeny() && p.Hold == 0 && !p.Plan.Cell && len(p.Plan.Logs) > 0 {
		p.Hold, p.unconfirmed = confirmWithin*o.StoreTimeout, true
	}
}

// confirmWithin is the length of an unconfirmed hold in store timeouts: writing, reading and confirming end within one,
// by the clock that dated it.
const confirmWithin = 2

// leadAll calls do while it leads the flights of all parts, in their order. If a part's turn does not come in time,
// that part fails, and do is not called.
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

// failUnasked fails all parts with the error of the one whose turn did not come. Nothing was written.
func failUnasked(parts []*part) {
	at := slices.IndexFunc(parts, func(p *part) bool { return p.Err != nil })
	for _, p := range parts {
		p.Err = parts[at].Err
	}
}

// settleAll decides all parts of charges.
func (s *Decider) settleAll(ctx context.Context, charges []demand.Charge, parts []*part) {
	toPlace := s.foresee(ctx, charges, parts)
	if len(toPlace) == 0 {
		return
	}
	for _, p := range toPlace {
		charges[p.of].Placed = charges[p.of].Placed || len(p.Plan.Logs) > 0
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

// foresee decides, without a write, the parts of charges that can't be kept because there is no room already, and
// returns the others. It reads only if that may save writes: each unit that is taken back leaves a tombstone in its
// log.
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

// wary reports whether p is likely to be denied, or may deny others while it is written.
func (s *Decider) wary(p *part) bool {
	if p.Plan.Cell || !p.Op.MayDeny() || p.Plan.Count == policy.CountAll && p.Op == count.OpTake {
		return false
	}
	return p.Cost > 1 || s.counted.wasDenied(p.Key)
}

// place writes and judges p by itself.
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

// keeps returns for each charge whether its units are kept: if it fits and no other charge denies the call, or if
// denied attempts count.
func keeps(charges []demand.Charge, parts []*part) []bool {
	fits, blocked := make([]bool, len(charges)), false
	if slices.ContainsFunc(parts, func(p *part) bool { return demand.TooEarly(p.Err) }) {
		return fits // all charges are decided anew, under other ids
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

// confirm makes held events permanent, all of them or none. It fails if it is late: after the end of the holds by any
// clock, other units may have taken their place.
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

// abandon fails the parts to be kept if it is not known whether their holds were confirmed. It takes their units back
// where possible: a removal wins over a confirmation.
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

// undo gives back p's units, which are not admitted.
func (s *Decider) undo(ctx context.Context, p *part) {
	counted := p.Decision.Entry
	p.Decision = p.Without
	if p.own != nil {
		s.counted.takeBack(ctx, &p.Target, p.own)
		s.counted.denials.Forget(p.Key)
		return
	}
	if err := s.serial.GiveBack(ctx, &p.Target, &counted); err != nil {
		p.Decision.Recorded = count.RecordedUnknown
	}
}

// conclude gives charges the decisions and errors of parts.
func conclude(charges []demand.Charge, parts []*part) {
	for _, p := range parts {
		charges[p.of].Decision, charges[p.of].Err = p.Decision, p.Err
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
