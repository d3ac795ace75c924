package limiter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// What became of a reservation whose units don't free themselves: its claim's value.
const (
	reservationSettled = 's' // recorded: the units stay
	reservationBegun   = 'b' // units that were given back are about to be recorded anew
	reservationFree    = 'f' // they were about to be, and surely were not
	reservationOver    = 'o' // its time was over before: the units were given back
)

// reserve holds what call asks for if it is allowed: on logs as events that end by
// themselves.
func (e *Engine) reserve(ctx context.Context, call *Call, charges []charge) (Answer, error) {
	keys, err := e.secrets.keyring(ctx)
	if err != nil {
		return e.failAll(ctx, charges, count.RecordedNo, err)
	}
	if e.reservations.full() {
		return e.failAll(ctx, charges, count.RecordedNo, fmt.Errorf("%w: %d reservations wait for their end", store.ErrOverloaded, maxReserved))
	}
	for i := range charges {
		charges[i].op, charges[i].hold = count.OpReserve, call.Reserve
	}
	err = e.decideAll(ctx, charges)
	t := tokenOf(tokenReservation, charges)
	answer := answerOf(charges)
	answer.Recorded = count.RecordedNo // what is held is not recorded
	if err != nil || len(t.entries) == 0 {
		return answer, err
	}
	t.ends = t.entries[0].At.Add(call.Reserve)
	answer.Reservation = keys.seal(t)
	e.keepHold(ctx, t, answer.Reservation, charges)
	e.reservations.endLater(t, charges, call.Reserve)
	return answer, nil
}

// reservation says what became of t, and reports whether that is the first word
// on it or the same as the first.
func (c *claims) reservation(ctx context.Context, t *token, what byte) (same bool, err error) {
	key := c.key(spaceReservation, t.entries[0].ID[:])
	_, err = c.swap(ctx, key, store.EventID{}, []byte{what}, 2*MaxReserve)
	if !errors.Is(err, store.ErrConflict) {
		return err == nil, err
	}
	cell, err := c.get(ctx, key, c.serial)
	if err != nil {
		return false, err
	}
	return len(cell.Value) == 1 && cell.Value[0] == what, nil
}

// settleReservation records what call's reservation holds. However often it is
// recorded, it counts once; after its end, as a record of its own.
func (e *Engine) settleReservation(ctx context.Context, call *Call, charges []charge) (Answer, error) {
	now, err := e.instant()
	if err != nil { // what can't be recorded now must not be claimed
		return e.failAll(ctx, charges, count.RecordedUnknown, err)
	}
	keys, err := e.secrets.keyring(ctx)
	if err != nil {
		return e.failAll(ctx, charges, count.RecordedUnknown, err)
	}
	t, err := keys.open(call.Reservation, tokenReservation)
	if err != nil {
		return Answer{}, &FieldError{Field: "reservation", Detail: "not a reservation of this service: use what a check with reserve_ms answered"}
	}
	if now > t.ends.Add(MaxReserve) { // its claim may be forgotten soon
		return Answer{}, &FieldError{Field: "reservation", Detail: "over for more than an hour: record without it"}
	}
	if len(charges) == 0 {
		charges = e.chargesOf(t)
	}
	held, err := t.match(charges)
	if err != nil {
		return Answer{}, err
	}
	receipt, err := e.settleAsGuest(ctx, t, held, charges)
	if err != nil {
		return e.failAll(ctx, charges, count.RecordedUnknown, err)
	}
	answer, err := e.whereThatLeaves(ctx, charges)
	if err == nil && len(receipt.entries) > 0 {
		answer.Receipt = keys.seal(receipt)
	}
	return answer, err
}

// settleAsGuest is settle for keys that may have owners.
func (e *Engine) settleAsGuest(ctx context.Context, t *token, held []*tokenEntry, charges []charge) (receipt *token, err error) {
	if e.opts.Owners == nil || e.shared == nil {
		return e.settle(ctx, t, held, charges)
	}
	var targets []*target
	for i := range charges {
		if c := &charges[i]; c.plan.Mode != policy.ModeOff && c.plan.countsOutsideCells() {
			targets = append(targets, &c.target)
		}
	}
	g, err := e.openKeys(ctx, targets...)
	if err != nil {
		return nil, err
	}
	defer g.leave()
	if receipt, err = e.settle(ctx, t, held, charges); err == nil {
		err = g.verify(ctx)
	}
	return receipt, err
}

// chargesOf returns charges for what t holds; none where a policy has begun to count
// anew.
func (e *Engine) chargesOf(t *token) []charge {
	var charges []charge
	for i := range t.entries {
		n := &t.entries[i]
		if p, err := e.planFor(n); err == nil {
			charges = append(charges, charge{target: target{plan: p, key: n.key, cell: n.cell}, op: count.OpRecord, cost: n.Cost})
		}
	}
	return charges
}

// match returns, for each charge, the entry of t that holds its units, nil for one
// that nothing is held for: its policy was off, or allowed without having asked.
func (t *token) match(charges []charge) ([]*tokenEntry, error) {
	wrong := &FieldError{Field: "reservation", Detail: "made for other demands, or under a policy that counts anew since: " +
		"use the policies, identifiers and costs of the check"}
	held := make([]*tokenEntry, len(charges))
	found := 0
	for i := range charges {
		c := &charges[i]
		for j := range t.entries {
			n := &t.entries[j]
			if n.policy == c.plan.Name && n.Cost == c.cost && c.counts(n.key) {
				held[i], found = n, found+1
			}
		}
	}
	if found != len(t.entries) {
		return nil, wrong
	}
	return held, nil
}

// counts reports whether key is one of t's.
func (t *target) counts(key store.Key) bool {
	for _, old := range t.old {
		if old == key {
			return true
		}
	}
	return t.key == key
}

// settle makes what is held stay, and returns what the receipt is for. Where t was over
// before, and where nothing was held, the units are recorded anew, once. The decisions of
// charges say what became of their units.
func (e *Engine) settle(ctx context.Context, t *token, held []*tokenEntry, charges []charge) (*token, error) {
	claims := e.claimsAbout(plansHeld(held, charges))
	over, err := e.isOver(ctx, t, claims)
	if err != nil {
		return nil, err
	}
	if !over {
		e.reservations.settled(t)
	}
	receipt := &token{kind: tokenReceipt}
	var again []charge
	var at []int // where they are among charges
	for i := range charges {
		c := &charges[i]
		c.decision.Recorded = count.RecordedYes
		switch {
		case c.plan.Mode == policy.ModeOff:
			c.decision.Recorded = count.RecordedNo
		case over || held[i] == nil: // it was let through though nothing could be held
			c := *c
			c.op, c.ends = count.OpRecord, true
			again, at = append(again, c), append(at, i)
		default:
			at := c.target
			at.key = held[i].key
			if err := e.settleEvents(ctx, &at, &held[i].Entry, func() (bool, error) { return e.removed(ctx, t) }); err != nil {
				return nil, err
			}
			receipt.entries = append(receipt.entries, at.entryOf(&held[i].Entry))
		}
	}
	if err := e.recordAnew(ctx, t, again); err != nil {
		return nil, err
	}
	for j, i := range at {
		charges[i].decision = again[j].decision
	}
	receipt.entries = appendEntries(receipt.entries, again)
	return receipt, nil
}

// isOver reports whether t was over before anybody recorded it. Its first word is the
// last, on whatever instance: what was settled is never given back, and what was over is
// recorded anew.
func (e *Engine) isOver(ctx context.Context, t *token, claims *claims) (bool, error) {
	what := byte(reservationSettled)
	if e.now() >= t.ends {
		what = reservationOver
	}
	same, err := claims.reservation(ctx, t, what)
	return same == (what == reservationOver), err
}

// plansHeld returns the plans of charges that something is held for.
func plansHeld(held []*tokenEntry, charges []charge) (plans []*plan) {
	for i := range charges {
		if held[i] != nil {
			plans = append(plans, charges[i].plan)
		}
	}
	return plans
}

// recordAnew counts again, once, what was given back when t was over, and has the decisions of
// again say whether it did. Whoever finds that somebody began to and did not say that it was
// done can't tell whether it was.
func (e *Engine) recordAnew(ctx context.Context, t *token, again []charge) error {
	if len(again) == 0 {
		return nil
	}
	claims := e.claimsOf(again)
	key := claims.key(spaceReservation, append([]byte("anew"), t.entries[0].ID[:]...))
	version, done, err := claims.beginAnew(ctx, key)
	if done {
		for i := range again {
			again[i].decision.Recorded = count.RecordedYes
		}
	}
	if err != nil || done {
		return err
	}
	err = e.decideAll(ctx, again)
	ended, told := howItEnded(again, err)
	if !told {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) { // whoever asked is gone, and waits for nothing more
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), e.opts.StoreTimeout/serialTries)
		defer cancel()
	}
	_, _ = claims.swap(ctx, key, version, []byte{ended}, 2*MaxReserve) // else repetitions can't tell
	return err
}

// howItEnded returns what repetitions are told of a record of charges anew, which failed or was
// decided; told is false where that can't be said in one word.
func howItEnded(charges []charge, failed error) (ended byte, told bool) {
	if failed != nil {
		store := (*StoreError)(nil)
		return reservationFree, errors.As(failed, &store) && store.Recorded == count.RecordedNo
	}
	var kept, lost, doubt bool
	for i := range charges {
		switch d := &charges[i].decision; {
		case d.Recorded == count.RecordedYes:
			kept = true
		case d.Recorded == count.RecordedUnknown:
			doubt = true
		case d.Degraded: // it was let through without the store
			lost = true
		}
	}
	if lost {
		return reservationFree, !kept && !doubt
	}
	return reservationSettled, !doubt
}

// beginAnew claims key for who records anew what a reservation was for, or says that it was
// done.
func (c *claims) beginAnew(ctx context.Context, key store.Key) (version store.EventID, done bool, err error) {
	var expected store.EventID
	for range 2 { // the second, where it is free
		version, err = c.swap(ctx, key, expected, []byte{reservationBegun}, 2*MaxReserve)
		if !errors.Is(err, store.ErrConflict) {
			return version, false, err
		}
		var cell store.Cell
		cell, err = c.get(ctx, key, c.serial)
		switch {
		case err != nil:
			return store.EventID{}, false, err
		case bytes.Equal(cell.Value, []byte{reservationSettled}):
			return store.EventID{}, true, nil
		case !bytes.Equal(cell.Value, []byte{reservationFree}):
			return store.EventID{}, false, fmt.Errorf("%w: an earlier record of this reservation ended without an answer", store.ErrUnavailable)
		}
		expected = cell.Version
	}
	return store.EventID{}, false, fmt.Errorf("%w: this reservation is being recorded elsewhere", store.ErrUnavailable)
}

// settleEvents makes n's event stay, if t keeps events. It may ask whether one that is
// not there was removed.
func (e *Engine) settleEvents(ctx context.Context, t *target, n *count.Entry, removed func() (bool, error)) error {
	if e.exclusive != nil {
		return e.settleIn(ctx, t, n, e.exclusive.store)
	}
	parts := t.plan.parts
	if len(parts) == 0 {
		parts = []*plan{t.plan}
	}
	for _, p := range parts {
		part := t.as(p)
		if p.Serial {
			if err := e.shared.serial.settleEvent(ctx, &part, n, removed); err != nil {
				return err
			}
		} else if err := e.settleIn(ctx, &part, n, e.shared.store); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) settleIn(ctx context.Context, t *target, n *count.Entry, s store.Store) error {
	if len(t.plan.Logs) == 0 {
		return nil
	}
	return s.Write(ctx, &store.Write{
		Key: t.key, Level: t.plan.Consistency.Write, Logs: t.plan.logWrites, Settle: true,
		Events: []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}},
	})
}

// removed reports whether an event of reservation t that is not there was given back: a
// hold that was to be settled and was not leaves by itself after its time. It must be
// asked after the event was looked for, under the condition of what is written then.
func (e *Engine) removed(ctx context.Context, t *token) (bool, error) {
	if e.now() < t.ends {
		return true, nil
	}
	for i := range t.entries {
		p, err := e.planFor(&t.entries[i])
		if err != nil { // it counts nothing any more, so that nothing is given back
			continue
		}
		claims := e.claimsAbout([]*plan{p})
		cell, err := claims.get(ctx, claims.key(spaceRefund, t.entries[i].ID[:]), claims.serial)
		if err != nil || len(cell.Value) > 0 {
			return true, err
		}
	}
	return false, nil
}

// settleEvent makes n's event stay in the log beside t's cell, unless it was removed:
// what is said there last stands, so the condition has to say that the event is there,
// or that it left by itself. It reads as far back as it must to know.
func (x *serial) settleEvent(ctx context.Context, t *target, n *count.Entry, removed func() (bool, error)) error {
	if len(t.plan.Logs) == 0 {
		return nil
	}
	for own := 1; ; own *= 2 {
		hidden, untold := false, error(nil)
		err := x.update(ctx, t, own, func(s *store.State, _ store.Instant, w *store.Write) bool {
			events := s.Logs[0].Events
			gone := !slices.ContainsFunc(events, func(e store.Event) bool { return e.ID == n.ID })
			hidden = gone && settledAmong(events) >= t.plan.Logs[0].Limit+own
			if gone && !hidden {
				gone, untold = removed()
			}
			if gone || s.Reset >= n.At {
				return false
			}
			w.Events, w.Settle = []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}}, true
			return true
		})
		if err = cmp.Or(err, untold); err != nil || !hidden {
			return err
		}
	}
}

// settledAmong returns how many of events are no holds.
func settledAmong(events []store.Event) (n int) {
	for i := range events {
		if events[i].Ends == 0 {
			n++
		}
	}
	return n
}

// whereThatLeaves answers a record of charges whose decisions say what became of it: it is
// allowed, and tells the state as it is. If that can't be told, what became of it stays true.
func (e *Engine) whereThatLeaves(ctx context.Context, charges []charge) (Answer, error) {
	became := make([]count.Decision, len(charges))
	for i := range charges {
		c := &charges[i]
		became[i] = c.decision
		c.op, c.cost, c.id = count.OpCheck, 0, store.EventID{}
	}
	err := e.decideAll(ctx, charges)
	for i := range charges {
		d := &charges[i].decision
		d.Recorded, d.Degraded = became[i].Recorded, d.Degraded || became[i].Degraded
	}
	answer := answerOf(charges)
	if failed := (*StoreError)(nil); errors.As(err, &failed) {
		err = e.halfDone(charges, &StoreError{Recorded: answer.Recorded, Err: failed.Err})
	}
	return answer, err
}
