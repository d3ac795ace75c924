package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// refunds makes receipts for counted units, and gives the units of receipts back.
type refunds struct {
	*basis
	plans   *plans
	claims  *once.Scopes
	secrets *once.Secrets
	marks   *once.Marks

	confirmed, refunded func(policy string, key store.Key, units int64) // of the Observer; may be nil
}

// addReceipts adds the tokens to a by which the counted units of charges can be refunded or released, if there are any. It
// adds no tokens while the store does not return its secret: the units are counted nevertheless.
func (r *refunds) addReceipts(ctx context.Context, a *Answer, charges []demand.Charge) {
	var one [1]once.Entry // most calls are of one demand
	t := once.Token{Kind: once.Receipt, Entries: once.AppendEntries(one[:0], charges), Marks: once.MarksOf(charges)}
	for i := range charges {
		if !charges[i].Decision.Allowed {
			t.Kind = once.Denied // a denied attempt that counts
		}
	}
	if len(t.Entries) == 0 {
		return
	}
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return
	}
	a.seal(keys, &t)
}

// seal adds t's tokens to a: a receipt of the counted units, and a release of those under concurrent limits. If all units
// are under concurrent limits, the receipt is the release.
func (a *Answer) seal(keys *once.Keyring, t *once.Token) {
	if !t.Releases() {
		a.Receipt = keys.Seal(t)
		return
	}
	a.Release = keys.Seal(t.Part(true))
	a.Receipt = a.Release
	if counted := t.Part(false); len(counted.Entries) > 0 {
		a.Receipt = keys.Seal(counted)
	}
}

// Refund gives receipt's units back, once. If receipt is a reservation, it releases all held units at once. A repeated
// release of units under concurrent limits has no effect, and no error. Errors wrap ErrNoReceipt or, as a StoreError,
// ErrUnavailable; its Recorded says whether the units still count. A repetition completes a refund that failed, except for
// counters.
//
// If the receipt is more recent than a store timeout, this instance gives units in counters and buckets back a store
// timeout later.
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
	case err != nil: // units that can't be given back now must not be claimed
		return &count.StoreError{Recorded: count.RecordedYes, Err: err}
	case now >= t.Entries[0].At.Add(lasts):
		return fmt.Errorf("%w: its window is over", ErrNoReceipt)
	case !slices.ContainsFunc(plans, func(p *demand.Plan) bool { return !p.Releases }): // needs no claim: removals can be repeated
		return r.giveAllBack(ctx, t, plans)
	}
	claimed, err := r.claim(ctx, t, plans, once.Refunded, lasts+cas.CellMargin)
	if claimed.first && err == nil && r.refunded != nil {
		for i := range claimed.Entries {
			r.refunded(claimed.Entries[i].Policy, claimed.Entries[i].Key, claimed.Entries[i].Cost)
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

// claimedPart has the entries of a receipt that are claimed for a refund or a confirmation, by this call or an earlier one.
type claimedPart struct {
	once.Token
	plans []*demand.Plan

	first    bool // this call claimed an entry first
	refunded bool // an earlier claim of an entry is for a refund
}

// claim claims each entry of t for fate, because the receipts of one reservation need not have the same entries. The claim
// of the first entry decides for all: a confirmed receipt is not refunded, and a refunded one not confirmed. Entries that
// were claimed for the same fate before are also returned, because the earlier call may not have completed.
func (r *refunds) claim(
	ctx context.Context, t *once.Token, plans []*demand.Plan, fate once.Fate, ttl time.Duration,
) (got claimedPart, failed error) {
	errs, said := make([]error, len(t.Entries)), make([]once.Said, len(t.Entries))
	claim := func(i int) {
		said[i], errs[i] = r.claims.About(plans[i:i+1]).Claim(ctx, t.Entries[i].ID, fate, ttl)
	}
	got.Kind = t.Kind
	if claim(0); errs[0] != nil || said[0].Fate != fate {
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
		case said[i].Fate == fate:
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

// plansOf returns the plans of t's entries, and the time for which the entries matter.
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

// giveAllBack gives back every entry of t. After a failure units stay counted; removals of events are repeated in the
// background.
func (r *refunds) giveAllBack(ctx context.Context, t *once.Token, plans []*demand.Plan) error {
	var failed error
	for i := range t.Entries {
		n := &t.Entries[i]
		at := demand.Target{Plan: plans[i], Key: n.Key}
		failed = errors.Join(failed, r.giveBack(ctx, t, &at, n, n.Sums == plans[i].Sums))
	}
	if failed != nil {
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: failed}
	}
	return nil
}

// giveBack removes the units of n, an entry of t, for at from the store. sums says whether the present counters and cells are
// those in which n was counted; otherwise it removes nothing from them. For a reservation it must be called only once. The
// units stay in this instance's local counts, which decide only during outages of the store.
func (r *refunds) giveBack(ctx context.Context, t *once.Token, at *demand.Target, n *once.Entry, sums bool) error {
	if t.Kind != once.Reserved {
		return r.decider.GiveBack(ctx, at, &n.Entry, sums)
	}
	mark := r.claims.About([]*demand.Plan{at.Plan}).Key(once.SpaceReservation, append([]byte("given back"), n.ID[:]...))
	return r.decider.EndHold(ctx, at, &n.Entry, sums, demand.HoldEnd{At: t.Ends, Mark: mark, Kept: 2 * once.MaxReserve})
}

// planFor returns the plan of t's policy, if it counts under the key space in which t was counted.
func (ps *plans) planFor(t *once.Entry) (*demand.Plan, error) {
	p := ps.inForce.Load().byName[t.Policy]
	if p == nil {
		return nil, fmt.Errorf("%w: its policy is not in force", once.ErrToken)
	}
	if !slices.ContainsFunc(p.Keys, func(k *keys.Keys) bool { return k.ID() == t.Space }) {
		return nil, fmt.Errorf("%w: its policy counts under new keys", once.ErrToken)
	}
	return p.At(t.Key), nil
}
