package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Confirmation is the result of a confirmation.
type Confirmation struct {
	Confirmed bool // a limit depends on confirmations; false: nothing has changed
	Replayed  bool // the units were confirmed before; parts that had failed then are done now
}

// Confirm confirms receipt's units: limits with until: confirmed give them back, and conversions count them as confirmed,
// once. Within a window, a conversion counts one confirmation of each number. Parts of identifiers that the call makes known
// are known from then on. An error is a ReceiptError, which is an ErrNoReceipt, or a StoreError that wraps ErrUnavailable,
// whose Recorded says whether the units still count as unconfirmed.
func (e *Engine) Confirm(ctx context.Context, receipt string) (Confirmation, error) {
	return e.refunds.confirm(ctx, receipt)
}

func (r *refunds) confirm(ctx context.Context, receipt string) (Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, r.settings.StoreTimeout)
	defer cancel()
	c, err := r.confirmable(ctx, receipt)
	if err != nil || len(c.t.Entries) == 0 {
		return Confirmation{}, err
	}
	now, err := r.decider.Instant()
	if err != nil { // units that can't be confirmed now must not be claimed
		return Confirmation{}, &count.StoreError{Recorded: count.RecordedYes, Err: err}
	}
	lasts := time.Duration(0)
	for _, p := range c.plans {
		lasts = max(lasts, p.ConfirmableFor()+r.settings.Timing.Slack())
	}
	if now >= c.t.Entries[0].At.Add(lasts) {
		return Confirmation{}, &ReceiptError{Why: "its window is over"}
	}
	got, err := r.claim(ctx, c.t, c.plans, once.Confirmed, c.claimFor)
	if len(got.Entries) > 0 {
		var counts once.Token
		var plans []*demand.Plan
		counts.Entries, plans, err = r.firstOfNumber(ctx, c, &got, err)
		if got.first && err == nil && r.confirmed != nil {
			for i := range counts.Entries {
				r.confirmed(counts.Entries[i].Policy, counts.Entries[i].Key, counts.Entries[i].Cost)
			}
		}
		err = errors.Join(err, r.giveAllBack(ctx, &counts, plans), r.marks.Renew(ctx, c.t.Marks, r.plans.inForce.Load().plan))
	}
	switch {
	case err != nil:
		return Confirmation{}, &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	case len(got.Entries) == 0 && got.refunded:
		return Confirmation{}, &ReceiptError{Why: "it was refunded"}
	}
	return Confirmation{Confirmed: true, Replayed: !got.first}, nil
}

// confirmable has the entries of a receipt that a confirmation claims: the first, whose claim decides for all, and those
// whose limits depend on confirmations. It has no entries if no limit depends on confirmations.
type confirmable struct {
	t        *once.Token
	plans    []*demand.Plan
	numbers  []store.Key   // for each entry, the number whose confirmations a conversion counts once in a window; zero: it counts all
	claimFor time.Duration // the life of the claims: as long as any entry of the receipt can be refunded
}

func (r *refunds) confirmable(ctx context.Context, receipt string) (*confirmable, error) {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return nil, &count.StoreError{Recorded: count.RecordedYes, Err: err}
	}
	t, err := keys.Open(receipt, once.Receipt, once.Denied)
	switch {
	case err != nil:
		return nil, &ReceiptError{Why: "it is no receipt of this service"}
	case t.Kind == once.Denied:
		return nil, &ReceiptError{Why: "its take was denied"}
	}
	plans, lasts, err := r.plansOf(t)
	if err != nil {
		return nil, &ReceiptError{Why: "one of its policies is not in force, or counts under new keys"}
	}
	c := &confirmable{t: &once.Token{Kind: t.Kind, Marks: t.Marks}, claimFor: lasts + cas.CellMargin}
	if !slices.ContainsFunc(plans, (*demand.Plan).Confirms) {
		return c, nil
	}
	for i, p := range plans {
		if i == 0 || p.Confirms() {
			c.t.Entries, c.plans = append(c.t.Entries, t.Entries[i]), append(c.plans, p)
			c.numbers = append(c.numbers, numberOf(t, plans, i))
		}
	}
	return c, nil
}

// numberOf returns the key of the number, or other identifier, a part of which entry i of t counts: the key of the demand
// that derives its policy, or else of the call's first demand. It is zero if the call asks for that policy alone.
func numberOf(t *once.Token, plans []*demand.Plan, i int) store.Key {
	for j, p := range plans {
		if slices.ContainsFunc(p.Derive, func(d policy.Derivation) bool { return d.Policy == plans[i].Name }) {
			return t.Entries[j].Key
		}
	}
	if i == 0 {
		return store.Key{}
	}
	return t.Entries[0].Key
}

// firstOfNumber returns the entries of got that must be confirmed, and their plans. A conversion counts one confirmation of
// a number within its window: otherwise one phone that confirms repeatedly would make up for codes to many others.
func (r *refunds) firstOfNumber(
	ctx context.Context, c *confirmable, got *claimedPart, failed error,
) (entries []once.Entry, plans []*demand.Plan, err error) {
	counts, errs := make([]bool, len(got.Entries)), make([]error, len(got.Entries))
	var all sync.WaitGroup
	for i := range got.Entries {
		e, p := &got.Entries[i], got.plans[i]
		e.Confirmed = true
		j := slices.IndexFunc(c.t.Entries, func(of once.Entry) bool { return of.ID == e.ID && of.Key == e.Key })
		window := p.ConversionWindow()
		if window == 0 || c.numbers[j] == (store.Key{}) {
			counts[i] = p.Confirms()
			continue
		}
		all.Go(func() {
			about := c.numbers[j].AppendTo(e.Key.AppendTo(nil))
			var first bool
			first, errs[i] = r.claims.About(got.plans[i:i+1]).First(ctx, once.SpaceConfirmed, about, e.ID, window)
			e.Repeats = !first
			counts[i] = errs[i] == nil && (first || p.GivesBack(&e.Entry))
		})
	}
	all.Wait()
	for i, does := range counts {
		if does {
			entries, plans = append(entries, got.Entries[i]), append(plans, got.plans[i])
		}
	}
	return entries, plans, errors.Join(append(errs, failed)...)
}
