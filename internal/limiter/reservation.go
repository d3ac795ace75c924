package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// reservations hold units for their callers, which settle them or leave them to end.
type reservations struct {
	*basis
	plans   *plans
	judge   *judge.Judge
	claims  *once.Scopes
	secrets *once.Secrets
	pending *once.Reservations // that this process has to end
	feed    store.Feed         // keeps them for the process that comes after this one; nil: nobody does
}

// reserve holds what call asks for if it is allowed: on logs as events that end by
// themselves.
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
	answer.Recorded = count.RecordedNo // what is held is not recorded
	if err != nil || len(t.Entries) == 0 {
		return answer, err
	}
	t.Ends = t.Entries[0].At.Add(call.Reserve)
	answer.Reservation = keys.Seal(t)
	r.keepHold(ctx, t, answer.Reservation, charges)
	r.pending.EndLater(t, charges, call.Reserve)
	return answer, nil
}

// settleReservation records what call's reservation holds. However often it is
// recorded, it counts once; after its end, as a record of its own.
func (r *reservations) settleReservation(ctx context.Context, call *Call, charges []demand.Charge) (Answer, error) {
	now, err := r.decider.Instant()
	if err != nil { // what can't be recorded now must not be claimed
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
	if now > t.Ends.Add(once.MaxReserve) { // its claim may be forgotten soon
		return Answer{}, &FieldError{Field: "reservation", Detail: "over for more than an hour: record without it"}
	}
	if len(charges) == 0 {
		charges = r.chargesOf(t)
	}
	held, err := match(t, charges)
	if err != nil {
		return Answer{}, err
	}
	receipt, err := r.settleAsGuest(ctx, t, held, charges)
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedUnknown, err)
	}
	answer, err := r.whereThatLeaves(ctx, charges)
	if err == nil && len(receipt.Entries) > 0 {
		answer.Receipt = keys.Seal(receipt)
	}
	return answer, err
}

// settleAsGuest is settle for keys that may have owners.
func (r *reservations) settleAsGuest(
	ctx context.Context, t *once.Token, held []*once.Entry, charges []demand.Charge,
) (receipt *once.Token, err error) {
	var targets []*demand.Target
	for i := range charges {
		if c := &charges[i]; c.Plan.Mode != policy.ModeOff && c.Plan.CountsOutsideCells() {
			targets = append(targets, &c.Target)
		}
	}
	err = r.decider.AsGuest(ctx, targets, func(ctx context.Context) (err error) {
		receipt, err = r.settle(ctx, t, held, charges)
		return err
	})
	return receipt, err
}

// isOf reports whether call's reservation, which need be none of this service, holds the units of charges.
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

// chargesOf returns charges for what t holds; none where a policy has begun to count
// anew.
func (r *reservations) chargesOf(t *once.Token) []demand.Charge {
	var charges []demand.Charge
	for i := range t.Entries {
		n := &t.Entries[i]
		if p, err := r.plans.planFor(n); err == nil {
			charges = append(charges, demand.Charge{Target: demand.Target{Plan: p, Key: n.Key, Cell: n.Cell}, Op: count.OpRecord, Cost: n.Cost})
		}
	}
	return charges
}

// match returns, for each charge, the entry of t that holds its units, nil for one
// that nothing is held for: its policy was off, or allowed without having asked.
func match(t *once.Token, charges []demand.Charge) ([]*once.Entry, error) {
	wrong := &FieldError{Field: "reservation", Detail: "made for other demands, or under a policy that counts anew since: " +
		"use the policies, identifiers and costs of the check"}
	held := make([]*once.Entry, len(charges))
	found := 0
	for i := range charges {
		c := &charges[i]
		for j := range t.Entries {
			n := &t.Entries[j]
			if n.Policy == c.Plan.Name && n.Cost == c.Cost && countsUnder(&c.Target, n.Key) {
				held[i], found = n, found+1
			}
		}
	}
	if found != len(t.Entries) {
		return nil, wrong
	}
	return held, nil
}

// countsUnder reports whether key is one of t's.
func countsUnder(t *demand.Target, key store.Key) bool {
	for _, old := range t.Old {
		if old == key {
			return true
		}
	}
	return t.Key == key
}

// settle makes what is held stay, and returns what the receipt is for. Where t was over
// before, and where nothing was held, the units are recorded anew, once. The decisions of
// charges say what became of their units.
func (r *reservations) settle(ctx context.Context, t *once.Token, held []*once.Entry, charges []demand.Charge) (*once.Token, error) {
	claims := r.claims.About(plansHeld(held, charges))
	over, err := r.isOver(ctx, t, claims)
	if err != nil {
		return nil, err
	}
	if !over {
		r.pending.Settled(t)
	}
	receipt := &once.Token{Kind: once.Receipt, Marks: t.Marks}
	var again []demand.Charge
	var at []int // where they are among charges
	for i := range charges {
		c := &charges[i]
		c.Decision.Recorded = count.RecordedYes
		switch {
		case c.Plan.Mode == policy.ModeOff:
			c.Decision.Recorded = count.RecordedNo
		case over || held[i] == nil: // it was let through though nothing could be held
			c := *c
			c.Op, c.Ends = count.OpRecord, true
			again, at = append(again, c), append(at, i)
		default:
			at := c.Target
			at.Key = held[i].Key
			if err := r.decider.SettleEvent(ctx, &at, &held[i].Entry, func() (bool, error) { return r.removed(ctx, t) }); err != nil {
				return nil, err
			}
			receipt.Entries = append(receipt.Entries, once.EntryOf(&at, &held[i].Entry))
		}
	}
	if err := r.recordAnew(ctx, t, again); err != nil {
		return nil, err
	}
	for j, i := range at {
		charges[i].Decision = again[j].Decision
	}
	receipt.Entries = once.AppendEntries(receipt.Entries, again)
	return receipt, nil
}

// isOver reports whether t was over before anybody recorded it. Its first word is the
// last, on whatever instance: what was settled is never given back, and what was over is
// recorded anew.
func (r *reservations) isOver(ctx context.Context, t *once.Token, claims *once.Claims) (bool, error) {
	what := byte(once.ReservationSettled)
	if r.now() >= t.Ends {
		what = once.ReservationOver
	}
	same, err := claims.Reservation(ctx, t, what)
	return same == (what == once.ReservationOver), err
}

// plansHeld returns the plans of charges that something is held for.
func plansHeld(held []*once.Entry, charges []demand.Charge) (plans []*demand.Plan) {
	for i := range charges {
		if held[i] != nil {
			plans = append(plans, charges[i].Plan)
		}
	}
	return plans
}

// recordAnew counts again, once, what was given back when t was over, and has the decisions of
// again say whether it did. Whoever finds that somebody began to and did not say that it was
// done can't tell whether it was.
func (r *reservations) recordAnew(ctx context.Context, t *once.Token, again []demand.Charge) error {
	if len(again) == 0 {
		return nil
	}
	claims := r.claims.Of(again)
	key := claims.Key(once.SpaceReservation, append([]byte("anew"), t.Entries[0].ID[:]...))
	version, done, err := claims.BeginAnew(ctx, key)
	if done {
		for i := range again {
			again[i].Decision.Recorded = count.RecordedYes
		}
	}
	if err != nil || done {
		return err
	}
	err = r.judge.DecideAll(ctx, again)
	ended, told := howItEnded(again, err)
	if !told {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) { // whoever asked is gone, and waits for nothing more
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), r.settings.StoreTimeout/cas.SerialTries)
		defer cancel()
	}
	_, _ = claims.Swap(ctx, key, version, []byte{ended}, 2*once.MaxReserve) // else repetitions can't tell
	return err
}

// howItEnded returns what repetitions are told of a record of charges anew, which failed or was
// decided; told is false where that can't be said in one word.
func howItEnded(charges []demand.Charge, failed error) (ended byte, told bool) {
	if failed != nil {
		store := (*count.StoreError)(nil)
		return once.ReservationFree, errors.As(failed, &store) && store.Recorded == count.RecordedNo
	}
	var kept, lost, doubt bool
	for i := range charges {
		switch d := &charges[i].Decision; {
		case d.Recorded == count.RecordedYes:
			kept = true
		case d.Recorded == count.RecordedUnknown:
			doubt = true
		case d.Degraded: // it was let through without the store
			lost = true
		}
	}
	if lost {
		return once.ReservationFree, !kept && !doubt
	}
	return once.ReservationSettled, !doubt
}

// removed reports whether an event of reservation t that is not there was given back: a
// hold that was to be settled and was not leaves by itself after its time. It must be
// asked after the event was looked for, under the condition of what is written then.
func (r *reservations) removed(ctx context.Context, t *once.Token) (bool, error) {
	if r.now() < t.Ends {
		return true, nil
	}
	for i := range t.Entries {
		p, err := r.plans.planFor(&t.Entries[i])
		if err != nil { // it counts nothing any more, so that nothing is given back
			continue
		}
		claims := r.claims.About([]*demand.Plan{p})
		cell, err := claims.Get(ctx, claims.Key(once.SpaceRefund, t.Entries[i].ID[:]), claims.Serial)
		if err != nil || len(cell.Value) > 0 {
			return true, err
		}
	}
	return false, nil
}

// whereThatLeaves answers a record of charges whose decisions say what became of it: it is
// allowed, and tells the state as it is. If that can't be told, what became of it stays true.
func (r *reservations) whereThatLeaves(ctx context.Context, charges []demand.Charge) (Answer, error) {
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
	if failed := (*count.StoreError)(nil); errors.As(err, &failed) {
		err = judge.HalfDone(charges, &count.StoreError{Recorded: answer.Recorded, Err: failed.Err})
	}
	return answer, err
}
