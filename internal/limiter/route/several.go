package route

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// The owners of the keys decide a call of several demands in two phases. First, each owner prepares the take of its key,
// which it decides like any other take, all at the same time. Then all takes are committed if all pass, and otherwise
// aborted. An abort leaves a trace in a bucket, which has drained less than if it had never held the unit, and costs a
// cell that changes by compare-and-set another write. So demands of these kinds come last, one after the other, once all
// others are prepared. docs/design/several-steps.md has the protocol.

// DecideAll decides charges by the owners of their keys, all or none of them, and fills in their decisions and errors.
func (r *Router) DecideAll(ctx context.Context, charges []demand.Charge) {
	all := make(several, len(charges))
	for i := range charges {
		all[i] = &charges[i]
		all[i].Asked, all[i].Prepare = false, store.EventID{} // they may be set by an earlier attempt under an idempotency key
	}
	if !charges[0].Op.MayDeny() { // records are not undone
		all.each(func(c *demand.Charge) { r.Decide(ctx, c) })
		return
	}
	ctx, cancel := clock.Within(ctx, r.set.StoreTimeout)
	defer cancel()
	slices.SortFunc(all, func(a, b *demand.Charge) int { return bytes.Compare(a.Key.Sum[:], b.Key.Sum[:]) })
	r.prepareAll(ctx, all)
	r.concludeAll(ctx, all)
}

// several are charges that are allowed or denied together, in the order of their keys.
type several []*demand.Charge

// each calls do for all at the same time and waits for them.
func (s several) each(do func(*demand.Charge)) {
	if len(s) == 0 {
		return
	}
	var others sync.WaitGroup
	for _, c := range s[1:] {
		others.Go(func() { do(c) })
	}
	do(s[0])
	others.Wait()
}

// filter returns the charges of s for which keep returns true.
func (s several) filter(keep func(*demand.Charge) bool) (some several) {
	for _, c := range s {
		if keep(c) {
			some = append(some, c)
		}
	}
	return some
}

// prepareAll prepares all, or stops at charges that deny the call. Charges that are likely to deny come first, because the
// others are then spared, and with them those that count in any case.
func (r *Router) prepareAll(ctx context.Context, all several) {
	last := all.filter(comesLast) // sorted by limits: the smallest is the likeliest to deny, before others must be undone
	slices.SortStableFunc(last, func(a, b *demand.Charge) int { return cmp.Compare(a.Plan.Smallest(), b.Plan.Smallest()) })
	all = all.filter(func(c *demand.Charge) bool { return !comesLast(c) })
	var first, rest several // Likely may change, so it is called once for each charge
	for _, c := range all {
		if !c.CanAbort() || r.shared.Denials.Likely(c.Key) {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	first.each(func(c *demand.Charge) { r.prepare(ctx, c, true) })
	for _, c := range last {
		if r.shared.Denials.Likely(c.Key) {
			r.checkFirst(ctx, c)
		}
	}
	if all.blocked() || last.blocked() {
		return
	}
	rest.each(func(c *demand.Charge) { r.prepare(ctx, c, true) })
	if !all.blocked() {
		r.prepareInOrder(ctx, all)
	}
	if slices.ContainsFunc(all, deniesCall) {
		return
	}
	for _, c := range last {
		if r.prepare(ctx, c, true); last.blocked() {
			return
		}
	}
}

// comesLast reports whether giving c's units back would leave a trace or cost another write, so that all others are prepared
// first.
func comesLast(c *demand.Charge) bool { return !c.Plan.Abortable && c.CanAbort() }

// checkFirst denies c, of which no units count yet, if it has no room.
func (r *Router) checkFirst(ctx context.Context, c *demand.Charge) {
	r.checkOnly(ctx, c)
	if c.Asked = c.Err == nil && !c.Decision.Stands(); !c.Asked {
		c.Decision = count.Decision{}
	}
}

// prepareInOrder prepares the charges that depend on other calls, in the order of keys. It waits for another call only while
// this call has no units prepared for a later key, so that no two calls wait for each other.
func (r *Router) prepareInOrder(ctx context.Context, all several) {
	at := slices.IndexFunc(all, isInDoubt)
	if at < 0 {
		return
	}
	r.abort(ctx, all[at+1:].filter(isPrepared))
	for _, c := range all[at:] {
		if isPrepared(c) || !c.CanAbort() {
			continue
		}
		if r.prepare(ctx, c, false); all.blocked() {
			return
		}
	}
}

// prepare has c decided by the owner of its key. If atOnce is true, the owner does not wait for other calls.
func (r *Router) prepare(ctx context.Context, c *demand.Charge, atOnce bool) {
	c.Decision, c.Err, c.Asked = count.Decision{}, nil, true
	if c.CanAbort() && !comesLast(c) {
		c.Prepare, c.AtOnce = r.ids.Next(r.set.Timing.Instant()), atOnce
	}
	r.Decide(ctx, c)
	if c.Err != nil {
		return
	}
	likely := store.Distant
	if c.Decision.Stands() {
		likely = 0
	}
	r.shared.Denials.Expect(c.Key, likely)
}

// isInDoubt reports whether the decision on c was in doubt.
func isInDoubt(c *demand.Charge) bool { return errors.Is(c.Err, prepared.ErrInDoubt) }

// isPrepared reports whether c is prepared, or may be.
func isPrepared(c *demand.Charge) bool {
	if c.Prepare == (store.EventID{}) {
		return false
	}
	failed, ok := errors.AsType[*count.StoreError](c.Err)
	return c.Err == nil && c.Decision.Recorded == count.RecordedYes || ok && failed.Recorded != count.RecordedNo
}

// countsInCell reports whether c counts in a cell, and must not if other charges deny the call.
func countsInCell(c *demand.Charge) bool {
	return c.Asked && comesLast(c) && c.Err == nil && c.Decision.Recorded == count.RecordedYes
}

// blocked reports whether a charge of s denies the call, whether or not other calls commit.
func (s several) blocked() bool {
	return slices.ContainsFunc(s, func(c *demand.Charge) bool { return c.Asked && !isInDoubt(c) && deniesCall(c) })
}

// deniesCall reports whether c denies the call that it is a part of.
func deniesCall(c *demand.Charge) bool {
	if c.Err != nil {
		return c.Plan.OnFailure() == policy.OnStoreErrorDeny
	}
	return !c.Decision.Stands()
}

// concludeAll commits the prepared charges if all pass, and otherwise aborts them. Charges that do not count then get the
// decision of a check.
func (r *Router) concludeAll(ctx context.Context, all several) {
	if !slices.ContainsFunc(all, func(c *demand.Charge) bool { return !c.Asked || deniesCall(c) }) {
		for _, c := range all.filter(isPrepared) {
			r.commit(c)
		}
		return
	}
	if all.blocked() { // the call is denied, so charges in doubt need no decision
		for _, c := range all.filter(isInDoubt) {
			c.Err, c.Asked = nil, false
		}
	}
	undone := all.filter(func(c *demand.Charge) bool { return !c.Asked || isPrepared(c) || countsInCell(c) })
	r.abort(ctx, undone.filter(func(c *demand.Charge) bool { return c.Asked }))
	undone.filter(func(c *demand.Charge) bool { return c.Err == nil }).each(func(c *demand.Charge) { r.checkOnly(ctx, c) })
}

// checkOnly gives c, of which no units count, the decision of a check. If the check fails, c keeps its decision; without
// one, it gets that of an empty key.
func (r *Router) checkOnly(ctx context.Context, c *demand.Charge) {
	check := *c
	check.Op, check.Hold, check.ID, check.Prepare, check.AtOnce = count.OpCheck, 0, store.EventID{}, store.EventID{}, false
	check.Decision, check.Err = count.Decision{}, nil
	r.Decide(ctx, &check)
	was := c.Decision.Recorded
	switch {
	case check.Err == nil:
		c.Decision = check.Decision
	case c.Decision.Policy == nil:
		c.Decision = c.Plan.Unasked()
	}
	if c.Decision.Recorded = count.RecordedNo; was == count.RecordedUnknown {
		c.Decision.Recorded = count.RecordedUnknown
	}
}

// commit makes c's prepared units permanent. If the message to another owner is lost, the key stays in doubt for a while.
func (r *Router) commit(c *demand.Charge) {
	if c.Owner == nil {
		r.shared.Commit(c.Key, c.Prepare)
		return
	}
	c.Owner.Tell(&demand.Charge{Target: demand.Target{Key: c.Key}, Op: owner.OpCommit, Prepare: c.Prepare})
}

// end commits or aborts the units that were prepared under c.Prepare, on the instance that has prepared them.
func (r *Router) end(ctx context.Context, c *demand.Charge) error {
	switch {
	case c.Owner != nil:
		return c.Owner.Decide(ctx, c)
	case c.Op == owner.OpAbort:
		return r.shared.Abort(ctx, c.Key, c.Prepare)
	}
	r.shared.Commit(c.Key, c.Prepare) // a commit needs no term: the units already count
	return nil
}

// abort gives back the units of all, even after the caller has left. If it can't do so in time, they are given back later,
// and their Recorded is unknown.
func (r *Router) abort(ctx context.Context, all several) {
	if ctx.Err() != nil {
		until, _ := ctx.Deadline()
		patient, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
		defer cancel()
		ctx = patient
	}
	all.each(func(c *demand.Charge) {
		undo := r.undoing(c)
		recorded := count.RecordedNo
		if undo(ctx) != nil {
			recorded, c.Placed = count.RecordedUnknown, true
			r.shared.UndoLater(c, undo)
		}
		if c.Err == nil {
			c.Decision.Recorded = recorded
		}
		if c.Prepare = (store.EventID{}); c.Spare != (store.EventID{}) {
			c.ID, c.Spare = c.Spare, store.EventID{}
		}
	})
}

// undoing returns a function that gives back c's prepared units, or those in its cell, and is safe to repeat.
func (r *Router) undoing(c *demand.Charge) func(context.Context) error {
	if countsInCell(c) {
		e := c.Decision.Entry
		e.Claimed = e.At // the cell lists claimed entries, so that a repetition changes nothing
		undo := &demand.Charge{Target: c.Target, Op: owner.OpGiveBack, Back: &e}
		return func(ctx context.Context) error { r.Decide(ctx, undo); return undo.Err }
	}
	undo := &demand.Charge{Target: demand.Target{Key: c.Key}, Op: owner.OpAbort, Prepare: c.Prepare, Owner: c.Owner}
	return func(ctx context.Context) error { return r.end(ctx, undo) }
}

// patience is a divisor of the store timeout: if less than that part of it remains, a charge in doubt is not decided again.
const patience = 8

// mayAskAgain reports whether c is in doubt, may wait for other calls, and has time for another attempt.
func (r *Router) mayAskAgain(ctx context.Context, c *demand.Charge) bool {
	if c.AtOnce || !isInDoubt(c) || ctx.Err() != nil {
		return false
	}
	until, ok := ctx.Deadline()
	return ok && time.Until(until) > r.set.StoreTimeout/patience
}
