package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/settle"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// reservations holds units for callers, which settle them or let them end.
type reservations struct {
	*basis
	plans   *plans
	judge   *judge.Judge
	settler *settle.Settler
	secrets *once.Secrets
	refunds *refunds           // gives unused units back
	pending *once.Reservations // those that this process must end
	feed    store.Feed         // passes reservations to the next process; nil: they end with this one
}

// reserve holds the units of call if it is allowed. Holds in logs are events that end by themselves.
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

// settleReservation records the units of call's reservation, at their actual cost. They count once, however often they are
// recorded. After the reservation's end, they are counted by a new record.
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
		return Answer{}, &FieldError{Field: "reservation", Detail: "not a reservation of this service: use that of a check with reserve_ms"}
	}
	if now > t.Ends.Add(once.MaxReserve) { // its claim may expire soon
		return Answer{}, &FieldError{Field: "reservation", Detail: "over for more than an hour: record without it"}
	}
	if len(charges) == 0 {
		if charges, err = r.chargesOf(t, call.Cost); err != nil {
			return Answer{}, err
		}
	}
	held, ok := settle.Match(t, charges)
	if !ok {
		return Answer{}, &FieldError{Field: "reservation", Detail: "made for other demands, or under a policy that now counts under new keys: " +
			"use the policies and identifiers of the check"}
	}
	if err := costAsHeld(call, t, held, charges); err != nil {
		return Answer{}, err
	}
	into, err := r.settler.Settle(ctx, t, held, charges)
	if err == nil {
		err = r.refunds.giveAllBack(ctx, &into.Rest, into.Plans)
	}
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedUnknown, err)
	}
	answer, err := r.answerAfter(ctx, charges)
	answer.Settled = into.Settled
	if err == nil && len(into.Receipt.Entries) > 0 {
		answer.seal(keys, &into.Receipt)
	}
	return answer, err
}

// release gives back all units that t holds, which settles it at a cost of 0. Errors are those of Engine.Refund.
func (r *reservations) release(ctx context.Context, t *once.Token) error {
	now, err := r.decider.Instant()
	switch {
	case err != nil: // units that can't be given back now must not be claimed
		return &count.StoreError{Recorded: count.RecordedYes, Err: err}
	case now > t.Ends.Add(once.MaxReserve): // its claim may expire soon
		return fmt.Errorf("%w: %w", ErrNoReceipt, settle.ErrOver)
	}
	plans, _, err := r.refunds.plansOf(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	rest, before, err := r.settler.Release(ctx, t, plans)
	switch {
	case errors.Is(err, settle.ErrOver), errors.Is(err, settle.ErrSettled):
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	case err != nil:
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	if err := r.refunds.giveAllBack(ctx, &rest, plans); err != nil {
		return err
	}
	if before {
		return fmt.Errorf("%w: the reservation was released already", ErrNoReceipt)
	}
	return nil
}

// Settled is the result of settling a reservation for one demand.
type Settled = settle.Settled

// isOf reports whether call's reservation is valid and holds the units of charges.
func (r *reservations) isOf(ctx context.Context, call *Call, charges []demand.Charge) bool {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return false
	}
	t, err := keys.Open(call.Reservation, once.Reserved)
	if err != nil {
		return false
	}
	_, ok := settle.Match(t, charges)
	return ok
}

// chargesOf returns charges for the units of t, each with the Cost of a Call. It leaves out units whose policies count under
// other keys now.
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

// costAsHeld sets the costs of charges to the units that t holds for them, if no demand of call has a cost. held has the
// indices of t's entries. If some demands have a cost, it returns an error for one without, unless t holds as many units as
// the default cost.
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

// answerAfter returns the answer to a record of charges, with the present state of the limits. Recorded is that of the
// charges' decisions, also if the state can't be read.
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
