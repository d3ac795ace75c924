package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
)

// Confirmation is what a receipt was confirmed for.
type Confirmation struct {
	Confirmed bool // some limit goes by it; else nothing is changed
	Replayed  bool // it was confirmed before: what that left to do is done
}

// Confirm says that what receipt was given for turned out to be real: limits until: confirmed give its
// units back, and conversions count them as confirmed, once. Errors wrap ErrNoReceipt, as a ReceiptError,
// or, as a StoreError, ErrUnavailable; its Recorded says whether the units still count as unconfirmed.
func (e *Engine) Confirm(ctx context.Context, receipt string) (Confirmation, error) {
	return e.refunds.confirm(ctx, receipt)
}

func (r *refunds) confirm(ctx context.Context, receipt string) (Confirmation, error) {
	ctx, cancel := context.WithTimeout(ctx, r.settings.StoreTimeout)
	defer cancel()
	t, plans, claimFor, err := r.confirmable(ctx, receipt)
	if err != nil || len(t.Entries) == 0 {
		return Confirmation{}, err
	}
	now, err := r.decider.Instant()
	if err != nil { // what can't be confirmed now must not be claimed
		return Confirmation{}, &count.StoreError{Recorded: count.RecordedYes, Err: err}
	}
	lasts := time.Duration(0)
	for _, p := range plans {
		lasts = max(lasts, p.ConfirmableFor()+r.settings.Timing.Slack())
	}
	if now >= t.Entries[0].At.Add(lasts) {
		return Confirmation{}, &ReceiptError{Why: "its window is over"}
	}
	got, err := r.claim(ctx, t, plans, once.Confirmed, claimFor)
	for i := range got.Entries {
		got.Entries[i].Confirmed = true
	}
	if len(got.Entries) > 0 {
		err = errors.Join(err, r.giveAllBack(ctx, &got.Token, got.plans))
	}
	switch {
	case err != nil:
		return Confirmation{}, &count.StoreError{Recorded: count.RecordedUnknown, Err: err}
	case len(got.Entries) == 0 && got.refunded:
		return Confirmation{}, &ReceiptError{Why: "it was refunded"}
	}
	return Confirmation{Confirmed: true, Replayed: !got.first}, nil
}

// confirmable returns the entries of receipt that some limit goes by the confirmation of, their plans, and
// for how long they are to be claimed: as long as anything of the receipt can be refunded.
func (r *refunds) confirmable(ctx context.Context, receipt string) (
	found *once.Token, those []*demand.Plan, claimFor time.Duration, err error,
) {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return nil, nil, 0, &count.StoreError{Recorded: count.RecordedYes, Err: err}
	}
	t, err := keys.Open(receipt, once.Receipt)
	if err != nil {
		return nil, nil, 0, &ReceiptError{Why: "it is no receipt of this service"}
	}
	plans, lasts, err := r.plansOf(t)
	if err != nil {
		return nil, nil, 0, &ReceiptError{Why: "a policy that it is for is not in force, or has begun to count anew"}
	}
	found = &once.Token{Kind: t.Kind}
	for i, p := range plans {
		if p.Confirms() {
			found.Entries, those = append(found.Entries, t.Entries[i]), append(those, p)
		}
	}
	return found, those, lasts + cas.CellMargin, nil
}
