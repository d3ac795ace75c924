package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// reservations holds units for callers, which settle them or let them end.
type reservations struct {
	*basis
	plans   *plans
	judge   *judge.Judge
	claims  *once.Scopes
	secrets *once.Secrets
	refunds *refunds           // gives unused units back
	pending *once.Reservations // those that this process must end
	feed    store.Feed         // keeps them for the next process; nil: they are not kept
}

// reserve holds call's units if it is allowed, in logs as events that end by themselves.
func (r *reservations) reserve(ctx context.Context, call *Call, charges []demand.Charge) (Answer, error) {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedNo, err)
	}
	if r.pending.Full() {
		err := fmt.Errorf("%w: %d reservations wait for their end", store.ErrOverloaded, once.MaxReserved)
		return failAll(ctx, r.judge, charges, count.RecordedNo, err)
	}
	for i := range charges {
		charges[i].Op, charges[i].Hold = count.OpReserve, call.Reserve
	}
	err = r.judge.DecideAll(ctx, charges)
	t := once.TokenOf(once.Reserved, charges)
	answer := answerOf(charges)
	answer.Recorded = count.RecordedNo // held units are not recorded
	if err != nil || len(t.Entries) == 0 {
		return answer, err
	}
	t.Ends = t.Entries[0].At.Add(call.Reserve)
	answer.Reservation = keys.Seal(t)
	r.keepHold(ctx, t, answer.Reservation, charges)
	r.pending.EndLater(t, charges, call.Reserve)
	return answer, nil
}

// settleReservation records the units of call's reservation, at their actual cost. They count once, however often they
// are recorded; after the reservation's end, as a record of its own.
func (r *reservations) settleReservation(ctx context.Context, call *Call, charges []demand.Charge) (Answer, error) {
	now, err := r.decider.Instant()
	if err != nil { // units that can't be recorded now must not be claimed
		return failAll(ctx, r.judge, charges, count.RecordedUnknown, err)
	}
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedUnknown, err)
	}
	t, err := keys.Open(call.Reservation, once.Reserved)
	if err != nil {
		return Answer{}, &FieldError{Field: "reservation", Detail: "not a reservation of this service: use what a check with reserve_ms answered"}
	}
	if now > t.Ends.Add(once.MaxReserve) { // its claim may expire soon
		return Answer{}, &FieldError{Field: "reservation", Detail: "over for more than an hour: record without it"}
	}
	if len(charges) == 0 {
		if charges, err = r.chargesOf(t, call.Cost); err != nil {
			return Answer{}, err
		}
	}
	held, err := match(t, charges)
	if err == nil {
		err = costAsHeld(call, t, held, charges)
	}
	if err != nil {
		return Answer{}, err
	}
	s, err := r.settle(ctx, t, held, charges)
	if err == nil {
		err = r.refunds.giveAllBack(ctx, &s.rest, s.plans)
	}
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedUnknown, err)
	}
	answer, err := r.answerAfter(ctx, charges)
	answer.Settled = s.told
	if err == nil && len(s.receipt.Entries) > 0 {
		answer.seal(keys, &s.receipt)
	}
	return answer, err
}

// release gives back all units that t holds, which settles it at a cost of 0. Errors are those of Engine.Refund.
func (r *reservations) release(ctx context.Context, t *once.Token) error {
	now, err := r.decider.Instant()
	switch {
	case err != nil: // what can't be given back now must not be claimed
		return &count.StoreError{Recorded: count.RecordedYes, Err: err}
	case now > t.Ends.Add(once.MaxReserve): // its claim may expire soon
		return fmt.Errorf("%w: the reservation is over", ErrNoReceipt)
	}
	plans, _, err := r.refunds.plansOf(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	became, over, err := r.become(ctx, t, r.claims.About(plans), make([]int64, len(t.Entries)))
	switch {
	case err != nil:
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	case over:
		return fmt.Errorf("%w: the reservation is over", ErrNoReceipt)
	case slices.ContainsFunc(costsOf(t, &became), func(n int64) bool { return n > 0 }):
		return fmt.Errorf("%w: the reservation was settled already", ErrNoReceipt)
	}
	r.pending.Settled(t)
	rest := once.Token{Kind: once.Reserved, Ends: t.Ends}
	for i := range t.Entries {
		rest.Entries = append(rest.Entries, r.unused(&t.Entries[i], 0, &became))
	}
	if err := r.refunds.giveAllBack(ctx, &rest, plans); err != nil {
		return err
	}
	if became.Before {
		return fmt.Errorf("%w: the reservation was released already", ErrNoReceipt)
	}
	return nil
}

// Settled is the result of settling a reservation for one demand.
type Settled struct {
	Cost int64 // units that count, by the first record of the reservation
	Over int64 // units of Cost that the reservation did not hold, which count whatever the limit
}

// settlement divides a reservation's units into those that count and those that are given back.
type settlement struct {
	receipt once.Token     // for those that count
	rest    once.Token     // those that are given back
	plans   []*demand.Plan // one for each entry of the rest
	told    []Settled      // one for each charge
}

// isOf reports whether call's reservation, which may be invalid, holds the units of charges.
func (r *reservations) isOf(ctx context.Context, call *Call, charges []demand.Charge) bool {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return false
	}
	t, err := keys.Open(call.Reservation, once.Reserved)
	if err != nil {
		return false
	}
	_, err = match(t, charges)
	return err == nil
}

// chargesOf returns charges for the units of t, each with the Cost of a Call, without those of policies that count
// under other keys now.
func (r *reservations) chargesOf(t *once.Token, cost int64) ([]demand.Charge, error) {
	var charges []demand.Charge
	for i := range t.Entries {
		n := &t.Entries[i]
		units := n.Cost
		switch {
		case cost == CostNothing:
			units = 0
		case cost != 0 && n.Cost != t.Entries[0].Cost:
			return nil, &FieldError{Field: "cost", Detail: "the reservation holds different units of its demands: give demands, each with its cost"}
		case cost != 0:
			units = cost
		}
		if p, err := r.plans.planFor(n); err == nil {
			charges = append(charges, demand.Charge{Target: demand.Target{Plan: p, Key: n.Key}, Op: count.OpRecord, Cost: units})
		}
	}
	return charges, nil
}

// costAsHeld sets the costs of charges to the units that t holds for them, if no demand of call has a cost; held has the
// indices of t's entries. If only some demands have one, it refuses a demand without, unless its default is what t
// holds.
func costAsHeld(call *Call, t *once.Token, held []int, charges []demand.Charge) error {
	told := slices.ContainsFunc(call.Demands, func(d Demand) bool { return d.Cost != 0 })
	for i := range charges {
		switch asked := len(call.Demands) > i && call.Demands[i].Cost == 0; {
		case held[i] < 0:
		case len(call.Demands) > 0 && !told:
			charges[i].Cost = t.Entries[held[i]].Cost
		case asked && t.Entries[held[i]].Cost != charges[i].Cost:
			return call.inDemand(i, &FieldError{Field: "cost", Detail: "missing: give the cost of each demand, or nothing for that of the hold"})
		}
	}
	return nil
}

// match returns, for each charge, the index of the entry of t that holds its units, -1 if nothing is held for it, as
// its policy was off or allowed without the store.
func match(t *once.Token, charges []demand.Charge) ([]int, error) {
	wrong := &FieldError{Field: "reservation", Detail: "made for other demands, or under a policy that counts anew since: " +
		"use the policies and identifiers of the check"}
	held := make([]int, len(charges))
	found := 0
	for i := range charges {
		c := &charges[i]
		held[i] = slices.IndexFunc(t.Entries, func(n once.Entry) bool {
			return n.Policy == c.Plan.Name && countsUnder(&c.Target, n.Key)
		})
		if held[i] >= 0 {
			found++
		}
	}
	if found != len(t.Entries) {
		return nil, wrong
	}
	return held, nil
}

// countsUnder reports whether key is one of t's.
func countsUnder(t *demand.Target, key store.Key) bool {
	return t.Key == key || slices.Contains(t.OldKeys, key)
}

// settle makes held units permanent, as many as charges cost, and returns those to be given back. It records the units
// beyond these anew, once; it does so for all units if t was over before, and for charges for which nothing was held.
// If t was settled before, the earlier costs are final. The decisions of charges say whether their units count.
func (r *reservations) settle(ctx context.Context, t *once.Token, held []int, charges []demand.Charge) (*settlement, error) {
	claims := r.claims.About(plansHeld(held, charges))
	costs := costsOf(t, nil)
	for i, at := range held {
		if at >= 0 {
			costs[at] = charges[i].Cost
		}
	}
	became, over, err := r.become(ctx, t, claims, costs)
	if err != nil {
		return nil, err
	}
	if !over {
		r.pending.Settled(t)
		costs = costsOf(t, &became)
	}
	s := &settlement{
		receipt: once.Token{Kind: once.Receipt, Marks: t.Marks}, rest: once.Token{Kind: once.Reserved, Ends: t.Ends},
		told: make([]Settled, len(charges)),
	}
	var again []demand.Charge
	var at []int // their indices in charges
	for i := range charges {
		c := &charges[i]
		kept := int64(0) // of the held units
		if !over && held[i] >= 0 && c.Plan.Mode != policy.ModeOff {
			c.Cost = costs[held[i]]
			if kept, err = r.keep(ctx, t, held[i], c, &became, s); err != nil {
				return nil, err
			}
		}
		s.told[i] = Settled{Cost: c.Cost, Over: c.Cost - kept}
		c.Decision.Recorded = count.RecordedYes
		switch {
		case c.Plan.Mode == policy.ModeOff || c.Cost == 0:
			c.Decision.Recorded, s.told[i] = count.RecordedNo, Settled{}
		case c.Cost > kept:
			more := *c
			more.Op, more.Cost, more.Alone = count.OpRecord, c.Cost-kept, true
			again, at = append(again, more), append(at, i)
		}
	}
	if !over {
		costs = nil // the first claim of t has them
	}
	if costs, err = r.recordAnew(ctx, t, r.claims.Of(charges), again, costs); err != nil {
		return nil, err
	}
	for i := range held {
		if costs != nil && held[i] >= 0 {
			s.told[i] = Settled{Cost: costs[held[i]], Over: costs[held[i]]}
		}
	}
	for j, i := range at {
		kept := s.told[i].Cost - s.told[i].Over
		if again[j].Decision.Recorded == count.RecordedNo { // it was allowed without the store
			s.told[i] = Settled{Cost: kept}
		}
		recorded := worse(charges[i].Decision.Recorded, again[j].Decision.Recorded)
		if charges[i].Decision = again[j].Decision; kept > 0 {
			charges[i].Decision.Recorded = recorded
		}
	}
	s.receipt.Entries = once.AppendEntries(s.receipt.Entries, again)
	return s, nil
}

// keep makes the units of t's entry at permanent, as many as c costs, and returns their number. It adds the other units
// to s, to be given back.
func (r *reservations) keep(
	ctx context.Context, t *once.Token, at int, c *demand.Charge, became *once.Ending, s *settlement,
) (kept int64, err error) {
	n, of := &t.Entries[at], c.Target
	of.Key = n.Key
	if kept = min(c.Cost, n.Cost); kept > 0 {
		stays := n.Entry
		stays.Cost = kept
		if err := r.decider.SettleEvent(ctx, &of, &stays); err != nil {
			return 0, err
		}
		s.receipt.Entries = append(s.receipt.Entries, once.EntryOf(&of, &stays))
	}
	if p, err := r.plans.planFor(n); kept < n.Cost && err == nil && (kept == 0 || !p.EndsItself()) {
		s.rest.Entries, s.plans = append(s.rest.Entries, r.unused(n, kept, became)), append(s.plans, p)
	}
	return kept, nil
}

// unused returns the entry by which n's units are given back, but for those kept. n is of a reservation that ended as
// became says.
func (r *reservations) unused(n *once.Entry, kept int64, became *once.Ending) once.Entry {
	rest := *n
	rest.Cost, rest.Kept = n.Cost-kept, kept
	rest.Claimed, rest.Again = became.At, became.Before && !r.inMemory // a store in memory notices a repetition
	if kept > 0 {
		rest.ID = n.ID.Part()
	}
	return rest
}

// become claims that t is settled at costs, one for each entry, or that it is over. The first claim is final, on any
// instance: settled units are never given back, and units of a reservation that was over are recorded anew.
func (r *reservations) become(
	ctx context.Context, t *once.Token, claims *once.Claims, costs []int64,
) (became once.Ending, over bool, err error) {
	if r.now() >= t.Ends {
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

// recordAnew counts, once, units that were given back when t was over, and units that t did not hold. It sets Recorded
// in the decisions of again. costs are those of t's entries if it was over, else nil. It returns the costs of the first
// call to record them, nil if that is this one. If an earlier attempt began and did not note its end, it is not known
// whether the units count.
func (r *reservations) recordAnew(
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
	err = r.judge.DecideAll(ctx, again)
	ended, told := endingNote(again, err)
	if !told {
		return nil, err
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the caller has left
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), r.settings.StoreTimeout/cas.SerialTries)
		defer cancel()
	}
	value := []byte{ended}
	if ended == once.ReservationSettled && !slices.Equal(costs, costsOf(t, nil)) {
		value = once.AppendCosts(value, costs)
	}
	_, _ = claims.Swap(ctx, key, version, value, 2*once.MaxReserve) // else repetitions can't tell
	return nil, err
}

// endingNote returns the note for repetitions on how a new record of charges ended, which failed or was decided; told
// is false if no note is true of all charges.
func endingNote(charges []demand.Charge, failed error) (ended byte, told bool) {
	if failed != nil {
		store, ok := errors.AsType[*count.StoreError](failed)
		return once.ReservationFree, ok && store.Recorded == count.RecordedNo
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

// answerAfter returns the answer to a record of charges whose decisions say whether it counts: allowed, with the
// present state. If the state can't be read, Recorded is still that of the record.
func (r *reservations) answerAfter(ctx context.Context, charges []demand.Charge) (Answer, error) {
	became := make([]count.Decision, len(charges))
	for i := range charges {
		c := &charges[i]
		became[i] = c.Decision
		c.Op, c.Cost, c.ID = count.OpCheck, 0, store.EventID{}
	}
	err := r.judge.DecideAll(ctx, charges)
	for i := range charges {
		d := &charges[i].Decision
		d.Recorded, d.Degraded = became[i].Recorded, d.Degraded || became[i].Degraded
	}
	answer := answerOf(charges)
	if failed, ok := errors.AsType[*count.StoreError](err); ok {
		err = judge.HalfDone(charges, &count.StoreError{Recorded: answer.Recorded, Err: failed.Err})
	}
	return answer, err
}
