package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// refunds give receipts for what was counted, and give it back for them.
type refunds struct {
	*basis
	plans   *plans
	claims  *once.Scopes
	secrets *once.Secrets
	teller  *teller
	marks   *once.Marks

	confirmed ConfirmObserver // nil: nobody learns of confirmations
	refunded  RefundObserver  // nil: nobody learns of refunds
}

// receipt returns the token by which what was counted for charges can be refunded;
// empty when nothing was. Nor is there one while the store does not tell its secret:
// that is no reason to fail what is counted.
func (r *refunds) receipt(ctx context.Context, charges []demand.Charge) string {
	var one [1]once.Entry // most calls are of one demand
	t := once.Token{Kind: once.Receipt, Entries: once.AppendEntries(one[:0], charges), Marks: once.MarksOf(charges)}
	for i := range charges {
		if !charges[i].Decision.Allowed {
			t.Kind = once.Denied // an attempt that counts all the same
		}
	}
	if len(t.Entries) == 0 {
		return ""
	}
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return ""
	}
	return keys.Seal(&t)
}

// Refund gives back what receipt was given for, once, or releases the reservation that it is: all that it holds is
// free at once. Errors wrap ErrNoReceipt or, as
// a StoreError, ErrUnavailable; its Recorded says whether the units still count. A repetition finishes
// what one that failed has left, but of counters.
//
// Counters and buckets that a receipt is younger than a store timeout for are given
// back a store timeout later, by this instance.
func (e *Engine) Refund(ctx context.Context, receipt string) error {
	ctx, cancel := context.WithTimeout(ctx, e.settings.StoreTimeout)
	defer cancel()
	keys, err := e.secrets.Keyring(ctx)
	if err != nil {
		return &count.StoreError{Recorded: count.RecordedYes, Err: err}
	}
	t, err := keys.Open(receipt, once.Receipt, once.Denied, once.Reserved)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	case t.Kind == once.Reserved:
		return e.reservations.release(ctx, t)
	}
	return e.refunds.refund(ctx, t)
}

// refund is Engine.Refund of a receipt.
func (r *refunds) refund(ctx context.Context, t *once.Token) error {
	plans, lasts, err := r.plansOf(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	now, err := r.decider.Instant()
	switch {
	case err != nil: // what can't be given back now must not be claimed
		return &count.StoreError{Recorded: count.RecordedYes, Err: err}
	case now >= t.Entries[0].At.Add(lasts):
		return fmt.Errorf("%w: its window is over", ErrNoReceipt)
	}
	claimed, err := r.claim(ctx, t, plans, once.Refunded, lasts+cas.CellMargin)
	if claimed.first && err == nil && r.refunded != nil {
		for i := range claimed.Entries {
			r.refunded.Refunded(claimed.Entries[i].Policy, claimed.Entries[i].Key, claimed.Entries[i].Cost)
		}
	}
	if len(claimed.Entries) > 0 {
		err = errors.Join(err, r.giveAllBack(ctx, &claimed.Token, claimed.plans))
	}
	switch {
	case err != nil:
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	case !claimed.first:
		return fmt.Errorf("%w: it was refunded or confirmed already", ErrNoReceipt)
	}
	return nil
}

// claimedPart is what of a receipt is claimed for what becomes of it, by this call or by one before.
type claimedPart struct {
	once.Token
	plans []*demand.Plan

	first    bool // some of it was not claimed before
	refunded bool // something else of it was refunded
}

// claim claims each entry of t for what becomes of it, as the receipts of one reservation need not have
// the same ones. The first has the say over all: a receipt of which anything is confirmed is not refunded, nor the other
// way round. An entry that was claimed for the same before is claimed again: who claimed it may not have come further.
func (r *refunds) claim(
	ctx context.Context, t *once.Token, plans []*demand.Plan, what once.Fate, ttl time.Duration,
) (got claimedPart, failed error) {
	errs, said := make([]error, len(t.Entries)), make([]once.Said, len(t.Entries))
	claim := func(i int) {
		said[i], errs[i] = r.claims.About(plans[i:i+1]).Claim(ctx, t.Entries[i].ID, what, ttl)
	}
	got.Kind = t.Kind
	if claim(0); errs[0] != nil || said[0].Fate != what {
		got.refunded = said[0].Fate == once.Refunded
		return got, errs[0]
	}
	var others sync.WaitGroup
	for i := range t.Entries[1:] {
		others.Go(func() { claim(i + 1) })
	}
	others.Wait()
	for i, err := range errs {
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case said[i].Fate == what:
			entry := t.Entries[i]
			entry.Claimed, entry.Again = said[i].At, said[i].Before
			got.Entries, got.plans = append(got.Entries, entry), append(got.plans, plans[i])
			got.first = got.first || !said[i].Before
		default:
			got.refunded = got.refunded || said[i].Fate == once.Refunded
		}
	}
	return got, failed
}

// plansOf returns the plans that count what t is for, and how long that matters.
func (r *refunds) plansOf(t *once.Token) (plans []*demand.Plan, lasts time.Duration, err error) {
	for i := range t.Entries {
		p, err := r.plans.planFor(&t.Entries[i])
		if err != nil {
			return nil, 0, err
		}
		plans = append(plans, p)
		lasts = max(lasts, 2*p.LongestWindow()+r.settings.Timing.Slack())
	}
	return plans, lasts, nil
}

// giveAllBack gives back every entry of t. What fails stays counted; removals of
// events are repeated in the background.
func (r *refunds) giveAllBack(ctx context.Context, t *once.Token, plans []*demand.Plan) error {
	var failed error
	for i := range t.Entries {
		n := &t.Entries[i]
		at := demand.Target{Plan: plans[i], Key: n.Key, Cell: n.Cell}
		failed = errors.Join(failed, r.giveBack(ctx, t, &at, n, n.Sums == plans[i].Sums))
		if plans[i].TakesBack {
			continue // only the owner of the key remembers anything of it, and has done so, or was made to forget it
		}
		_ = r.teller.publish(ctx, store.ChangeRefund, &at) // elsewhere a hint goes unrefreshed at worst
	}
	if failed != nil {
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: failed}
	}
	return nil
}

// giveBack takes out of the store what n, an entry of t, counted for at, of counters and cells only if
// sums says that they are those that counted it. For a reservation it must be called once only. This
// instance's own counts keep it: they are what it goes by in an outage, and few.
func (r *refunds) giveBack(ctx context.Context, t *once.Token, at *demand.Target, n *once.Entry, sums bool) error {
	if t.Kind != once.Reserved {
		return r.decider.GiveBack(ctx, at, &n.Entry, sums)
	}
	mark := r.claims.About([]*demand.Plan{at.Plan}).Key(once.SpaceReservation, append([]byte("given back"), n.ID[:]...))
	return r.decider.EndHold(ctx, at, &n.Entry, sums, t.Ends, mark, 2*once.MaxReserve)
}

// planFor returns the plan that counts where e was counted.
func (ps *plans) planFor(t *once.Entry) (*demand.Plan, error) {
	p := ps.inForce.Load().byName[t.Policy]
	if p == nil {
		return nil, fmt.Errorf("%w: its policy is not in force", once.ErrToken)
	}
	for _, keys := range p.Keys {
		if keys.ID() == t.Space {
			return p.At(t.Key), nil
		}
	}
	return nil, fmt.Errorf("%w: its policy has begun to count anew", once.ErrToken)
}
