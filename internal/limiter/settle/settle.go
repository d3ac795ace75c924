package settle

import (
	"context"
	"errors"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Errors of Settler.Release for a reservation with nothing to release.
var (
	ErrOver    = errors.New("the reservation is over")
	ErrSettled = errors.New("the reservation was settled already")
)

// Settler settles reservations and releases them.
type Settler struct {
	Judge    *judge.Judge
	Claims   *once.Scopes
	Pending  *once.Reservations // those that this process must end
	PlanFor  func(*once.Entry) (*demand.Plan, error)
	InMemory bool // the store is in this process's memory
}

// Settled is the result of settling a reservation for one demand.
type Settled struct {
	Cost int64 // units that count, by the first record of the reservation
	Over int64 // units of Cost that the reservation did not hold; they count whatever the limit
}

// Settlement divides a reservation's units into those that count and those that must be given back.
type Settlement struct {
	Receipt once.Token     // the units that count
	Rest    once.Token     // the units that must be given back
	Plans   []*demand.Plan // one for each entry of Rest
	Settled []Settled      // one for each charge
}

// Match returns, for each charge, the index of the entry of t that holds its units. The index is -1 if no units are held
// for it, because its policy was off, or allowed the check without the store. ok is false if an entry of t belongs to none
// of the charges.
func Match(t *once.Token, charges []demand.Charge) (held []int, ok bool) {
	held = make([]int, len(charges))
	found := 0
	for i := range charges {
		c := &charges[i]
		held[i] = slices.IndexFunc(t.Entries, func(n once.Entry) bool {
			return n.Policy == c.Plan.Name && (n.Key == c.Key || slices.Contains(c.OldKeys, n.Key))
		})
		if held[i] >= 0 {
			found++
		}
	}
	return held, found == len(t.Entries)
}

// Settle makes as many held units permanent as charges cost, and returns the units that must be given back. It also records,
// once, the units that t does not hold: those beyond the held ones, all units if t was over, and those of charges without
// held units. If t was settled before, the earlier costs are final. The decisions of charges say whether their units
// count.
func (s *Settler) Settle(ctx context.Context, t *once.Token, held []int, charges []demand.Charge) (*Settlement, error) {
	claims := s.Claims.About(plansHeld(held, charges))
	costs := costsOf(t, nil)
	for i, at := range held {
		if at >= 0 {
			costs[at] = charges[i].Cost
		}
	}
	became, over, err := s.become(ctx, t, claims, costs)
	if err != nil {
		return nil, err
	}
	if !over {
		s.Pending.Settled(t)
		costs = costsOf(t, &became)
	}
	into := &Settlement{
		Receipt: once.Token{Kind: once.Receipt, Marks: t.Marks}, Rest: once.Token{Kind: once.Reserved, Ends: t.Ends},
		Settled: make([]Settled, len(charges)),
	}
	var again []demand.Charge
	var at []int // their indices in charges
	for i := range charges {
		c := &charges[i]
		kept := int64(0) // held units that become permanent
		if !over && held[i] >= 0 && c.Plan.Mode != policy.ModeOff {
			c.Cost = costs[held[i]]
			if kept, err = s.keep(ctx, t, held[i], c, &became, into); err != nil {
				return nil, err
			}
		}
		into.Settled[i] = Settled{Cost: c.Cost, Over: c.Cost - kept}
		c.Decision.Recorded = count.RecordedYes
		switch {
		case c.Plan.Mode == policy.ModeOff || c.Cost == 0:
			c.Decision.Recorded, into.Settled[i] = count.RecordedNo, Settled{}
		case c.Cost > kept:
			more := *c
			more.Op, more.Cost, more.Alone = count.OpRecord, c.Cost-kept, true
			again, at = append(again, more), append(at, i)
		}
	}
	if !over {
		costs = nil // they are in the first claim of t, so recordAnew need not store them
	}
	if costs, err = s.recordAnew(ctx, t, s.Claims.Of(charges), again, costs); err != nil {
		return nil, err
	}
	for i := range held {
		if costs != nil && held[i] >= 0 {
			into.Settled[i] = Settled{Cost: costs[held[i]], Over: costs[held[i]]}
		}
	}
	for j, i := range at {
		kept := into.Settled[i].Cost - into.Settled[i].Over
		if again[j].Decision.Recorded == count.RecordedNo { // it was allowed without the store
			into.Settled[i] = Settled{Cost: kept}
		}
		recorded := charges[i].Decision.Recorded.With(again[j].Decision.Recorded)
		if charges[i].Decision = again[j].Decision; kept > 0 {
			charges[i].Decision.Recorded = recorded
		}
	}
	into.Receipt.Entries = once.AppendEntries(into.Receipt.Entries, again)
	return into, nil
}

// Release settles t, whose entries count under plans, at a cost of 0, and returns its units, which must be given back.
// before is true if t was released earlier.
func (s *Settler) Release(ctx context.Context, t *once.Token, plans []*demand.Plan) (rest once.Token, before bool, err error) {
	became, over, err := s.become(ctx, t, s.Claims.About(plans), make([]int64, len(t.Entries)))
	switch {
	case err != nil:
		return once.Token{}, false, err
	case over:
		return once.Token{}, false, ErrOver
	case slices.ContainsFunc(costsOf(t, &became), func(n int64) bool { return n > 0 }):
		return once.Token{}, false, ErrSettled
	}
	s.Pending.Settled(t)
	rest = once.Token{Kind: once.Reserved, Ends: t.Ends}
	for i := range t.Entries {
		rest.Entries = append(rest.Entries, s.unused(&t.Entries[i], 0, &became))
	}
	return rest, became.Before, nil
}

// keep makes as many units of t's entry with the index at permanent as c costs, and returns their number. It adds the
// other units to into.Rest.
func (s *Settler) keep(
	ctx context.Context, t *once.Token, at int, c *demand.Charge, became *once.Ending, into *Settlement,
) (kept int64, err error) {
	n, of := &t.Entries[at], c.Target
	of.Key = n.Key
	if kept = min(c.Cost, n.Cost); kept > 0 {
		stays := n.Entry
		stays.Cost = kept
		if err := s.Judge.Decider.SettleEvent(ctx, &of, &stays); err != nil {
			return 0, err
		}
		into.Receipt.Entries = append(into.Receipt.Entries, once.EntryOf(&of, &stays))
	}
	if p, err := s.PlanFor(n); kept < n.Cost && err == nil && (kept == 0 || !p.EndsItself()) {
		into.Rest.Entries, into.Plans = append(into.Rest.Entries, s.unused(n, kept, became)), append(into.Plans, p)
	}
	return kept, nil
}

// unused returns the entry by which all but the kept units of n are given back. became is the ending of n's reservation.
func (s *Settler) unused(n *once.Entry, kept int64, became *once.Ending) once.Entry {
	rest := *n
	rest.Cost, rest.Kept = n.Cost-kept, kept
	rest.Claimed, rest.Again = became.At, became.Before && !s.InMemory // a store in memory notices a repetition
	if kept > 0 {
		rest.ID = n.ID.Part()
	}
	return rest
}

// become claims that t is settled at costs, one for each entry, or, after its end, that it is over. It returns the first
// claim, and whether by that t is over. The first claim is final on every instance: settled units are never given back, and
// units of a reservation that was over must be recorded again.
func (s *Settler) become(
	ctx context.Context, t *once.Token, claims *once.Claims, costs []int64,
) (became once.Ending, over bool, err error) {
	if s.Judge.Settings.Timing.Instant() >= t.Ends {
		became, err = claims.Reservation(ctx, t, once.ReservationOver, nil)
		return became, became.What == once.ReservationOver, err
	}
	if slices.Equal(costs, costsOf(t, nil)) {
		costs = nil
	}
	became, err = claims.Reservation(ctx, t, once.ReservationSettled, costs)
	return became, became.What != once.ReservationSettled, err
}

// costsOf returns the costs at which t's entries were settled, or the held units if became is nil or has no costs.
func costsOf(t *once.Token, became *once.Ending) []int64 {
	if became != nil && became.Costs != nil {
		return became.Costs
	}
	held := make([]int64, len(t.Entries))
	for i := range t.Entries {
		held[i] = t.Entries[i].Cost
	}
	return held
}

// plansHeld returns the plans of charges with held units.
func plansHeld(held []int, charges []demand.Charge) (plans []*demand.Plan) {
	for i := range charges {
		if held[i] >= 0 {
			plans = append(plans, charges[i].Plan)
		}
	}
	return plans
}

// recordAnew counts, once, the units of again: units that t did not hold, or that were given back when t was over. It sets
// Recorded in their decisions. costs are those of t's entries if t was over, and otherwise nil. It returns the costs that an
// earlier call has recorded, or nil if this call records the units. It fails if an earlier attempt did not note its end:
// the units may count.
func (s *Settler) recordAnew(
	ctx context.Context, t *once.Token, claims *once.Claims, again []demand.Charge, costs []int64,
) ([]int64, error) {
	if len(again) == 0 && costs == nil {
		return nil, nil
	}
	key := claims.Key(once.SpaceReservation, append([]byte("anew"), t.Entries[0].ID[:]...))
	version, done, earlier, err := claims.BeginAnew(ctx, key, len(t.Entries))
	if err != nil {
		return nil, err
	}
	if done {
		for i := range again {
			again[i].Decision.Recorded = count.RecordedYes
		}
		if costs != nil && earlier == nil {
			earlier = costsOf(t, nil)
		}
		return earlier, nil
	}
	err = s.Judge.DecideAll(ctx, again)
	ended, ok := endingNote(again, err)
	if !ok {
		return nil, err
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the caller has left
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), s.Judge.Settings.StoreTimeout/cas.SerialTries)
		defer cancel()
	}
	value := []byte{ended}
	if ended == once.ReservationSettled && !slices.Equal(costs, costsOf(t, nil)) {
		value = once.AppendCosts(value, costs)
	}
	_, _ = claims.Swap(ctx, key, version, value, 2*once.MaxReserve) // if it fails, repetitions of the call fail
	return nil, err
}

// endingNote returns the state to note after a record of charges, for repetitions of the call. failed is the error of the
// record, nil if it was decided. ok is false if no state is true of all charges.
func endingNote(charges []demand.Charge, failed error) (state byte, ok bool) {
	if failed != nil {
		err, ok := errors.AsType[*count.StoreError](failed)
		return once.ReservationFree, ok && err.Recorded == count.RecordedNo
	}
	var kept, lost, doubt bool
	for i := range charges {
		switch d := &charges[i].Decision; {
		case d.Recorded == count.RecordedYes:
			kept = true
		case d.Recorded == count.RecordedUnknown:
			doubt = true
		case d.Degraded: // it was allowed without the store
			lost = true
		}
	}
	if lost {
		return once.ReservationFree, !kept && !doubt
	}
	return once.ReservationSettled, !doubt
}
