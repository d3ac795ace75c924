package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// receipt returns the token by which what was counted for charges can be refunded;
// empty when nothing was. Nor is there one while the store does not tell its secret:
// that is no reason to fail what is counted.
func (e *Engine) receipt(ctx context.Context, charges []charge) string {
	var one [1]tokenEntry // most calls are of one demand
	t := token{kind: tokenReceipt, entries: appendEntries(one[:0], charges)}
	if len(t.entries) == 0 {
		return ""
	}
	keys, err := e.secrets.keyring(ctx)
	if err != nil {
		return ""
	}
	return keys.seal(&t)
}

// Refund gives back what receipt was given for, once. Errors wrap ErrNoReceipt or, as
// a StoreError, ErrUnavailable; its Recorded says whether the units still count.
//
// Counters and buckets that a receipt is younger than a store timeout for are given
// back a store timeout later, by this instance.
func (e *Engine) Refund(ctx context.Context, receipt string) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	keys, err := e.secrets.keyring(ctx)
	if err != nil {
		return &StoreError{Recorded: count.RecordedYes, Err: err}
	}
	t, err := keys.open(receipt, tokenReceipt)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	plans, lasts, err := e.plansOf(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	now, err := e.instant()
	switch {
	case err != nil: // what can't be given back now must not be claimed
		return &StoreError{Recorded: count.RecordedYes, Err: err}
	case now >= t.entries[0].At.Add(lasts):
		return fmt.Errorf("%w: its window is over", ErrNoReceipt)
	}
	claimed, err := e.claimRefund(ctx, t, plans, lasts+cellMargin)
	if len(claimed.entries) > 0 {
		err = errors.Join(err, e.giveAllBack(ctx, &claimed.token, claimed.plans))
	}
	switch {
	case err != nil:
		return &StoreError{Recorded: count.RecordedUnknown, Err: err}
	case len(claimed.entries) == 0:
		return fmt.Errorf("%w: it was refunded already", ErrNoReceipt)
	}
	return nil
}

// refundable is what of a receipt nobody has refunded before.
type refundable struct {
	token
	plans []*plan
}

// claimRefund claims each entry of t, as the receipts of one reservation need not have the same
// ones, and returns those that it got.
func (e *Engine) claimRefund(ctx context.Context, t *token, plans []*plan, ttl time.Duration) (got refundable, failed error) {
	errs := make([]error, len(t.entries))
	claim := func(i int) {
		claims := e.claimsAbout(plans[i : i+1])
		_, errs[i] = claims.swap(ctx, claims.key(spaceRefund, t.entries[i].ID[:]), store.EventID{}, []byte{1}, ttl)
	}
	var others sync.WaitGroup
	for i := range t.entries[1:] {
		others.Go(func() { claim(i + 1) })
	}
	claim(0)
	others.Wait()
	got.kind = t.kind
	for i, err := range errs {
		switch {
		case err == nil:
			got.entries, got.plans = append(got.entries, t.entries[i]), append(got.plans, plans[i])
		case !errors.Is(err, store.ErrConflict):
			failed = errors.Join(failed, err)
		}
	}
	return got, failed
}

// plansOf returns the plans that count what t is for, and how long that matters.
func (e *Engine) plansOf(t *token) (plans []*plan, lasts time.Duration, err error) {
	for i := range t.entries {
		p, err := e.planFor(&t.entries[i])
		if err != nil {
			return nil, 0, err
		}
		plans = append(plans, p)
		lasts = max(lasts, 2*p.LongestWindow()+e.opts.timing.Slack())
	}
	return plans, lasts, nil
}

// giveAllBack gives back every entry of t. What fails stays counted; removals of
// events are repeated in the background.
func (e *Engine) giveAllBack(ctx context.Context, t *token, plans []*plan) error {
	var failed error
	for i := range t.entries {
		n := &t.entries[i]
		at := target{plan: plans[i], key: n.key, cell: n.cell}
		if t.kind == tokenReservation && e.exclusive != nil {
			failed = errors.Join(failed, e.endHold(ctx, &at, &n.Entry, n.sums == plans[i].sums, t.ends))
		} else {
			failed = errors.Join(failed, e.giveBack(ctx, &at, &n.Entry, n.sums == plans[i].sums))
		}
		_ = e.publish(ctx, store.ChangeRefund, &at) // elsewhere a hint goes unrefreshed at worst
	}
	if failed != nil {
		return &StoreError{Recorded: count.RecordedUnknown, Err: failed}
	}
	return nil
}

// giveBack takes out of the store what n counted for t, of counters and cells only if
// sums says that they are those that counted it. It must be called once only. This
// instance's own counts keep it: they are what it goes by in an outage, and few.
func (e *Engine) giveBack(ctx context.Context, t *target, n *count.Entry, sums bool) error {
	if e.exclusive != nil {
		return e.exclusive.giveBack(ctx, t, n, sums, e.now())
	}
	if t.plan.behind { // it may not be written yet
		g, err := e.openKeys(ctx, t)
		if err != nil {
			return err
		}
		defer g.leave()
	}
	return e.shared.giveBack(ctx, t, n, sums)
}

// giveBack takes out of the store what n counted for t.
func (x *exclusive) giveBack(ctx context.Context, t *target, n *count.Entry, sums bool, now store.Instant) error {
	var failed error
	q := t.plan.Query(t.key, now, 1, nil)
	err := x.store.Update(ctx, &q, func(s *store.State, w *store.Write) { failed = x.takeOut(t, n, sums, now, s, w) })
	return errors.Join(failed, err)
}

// takeOut has w take out of s, which was read for t, what n counted.
func (x *exclusive) takeOut(t *target, n *count.Entry, sums bool, now store.Instant, s *store.State, w *store.Write) error {
	var c chain
	if t.plan.Cell {
		var err error
		if c, err = t.plan.open(s); err != nil {
			return err
		}
	}
	now = x.redate(t.plan, s, now, w)
	if s.Reset >= n.At {
		return nil
	}
	w.Remove, w.Logs = []store.EventID{n.ID}, t.plan.logWrites
	if !sums {
		return nil
	}
	if n.Epoch == s.Reset {
		w.Add = t.plan.AppendCounts(w.Add, n.Epoch, n.At, -n.Cost)
	}
	if t.plan.Cell {
		t.plan.GiveBack(s, n, now)
		cell := t.plan.shut(nil, s, &c, x.ids.Next(now), now, x.opts)
		w.Cell = &cell
	}
	return nil
}

// giveBack takes out of the store what n counted for t, of each part of it.
func (s *shared) giveBack(ctx context.Context, t *target, n *count.Entry, sums bool) error {
	if len(t.plan.parts) == 0 {
		return s.giveBackPart(ctx, t, n, sums)
	}
	var failed error
	for _, p := range t.plan.parts {
		part := t.as(p)
		failed = errors.Join(failed, s.giveBackPart(ctx, &part, n, sums))
	}
	return failed
}

func (s *shared) giveBackPart(ctx context.Context, t *target, n *count.Entry, sums bool) error {
	switch {
	case !t.plan.Cell:
		return s.counted.giveBack(ctx, t, n, sums)
	case sums || t.plan.Serial && len(t.plan.Logs) > 0:
		return s.serial.giveBack(ctx, t, n, sums)
	}
	return nil
}

// giveBack takes out of the store what n, whose write was acknowledged, counted for t.
// Events go at once. Counters are subtracted from once, and no sooner than a store
// timeout after the addition: later, if it is not sure to be that old.
func (c *counted) giveBack(ctx context.Context, t *target, n *count.Entry, sums bool) error {
	var counts []store.Count
	if sums {
		counts = t.plan.AppendCounts(nil, n.Epoch, n.At, -n.Cost)
	}
	events := removal(t, []store.Event{{ID: n.ID}})
	now, err := c.opts.timing.Checked()
	old := err == nil && now.Sub(n.At) > 2*(c.opts.StoreTimeout+c.opts.ClockTolerance)
	var failed error
	switch {
	case len(counts) == 0:
	case old:
		w := t.sums(counts)
		if failed = c.store.Write(ctx, w); failed != nil && t.plan.Tally {
			c.takeBacks.Push(totals.TakeBack{Write: w.Again(failed)})
		}
	default:
		c.takeBacks.Subtract(t.sums(t.plan.AppendCounts(nil, n.Epoch, n.At, n.Cost)))
	}
	if len(t.plan.Logs) == 0 {
		return failed
	}
	if err := c.store.Write(ctx, events); err != nil {
		c.takeBacks.Push(totals.TakeBack{Write: events})
		failed = errors.Join(failed, err)
	}
	return failed
}
