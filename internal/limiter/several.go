package limiter

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// Calls of several demands, by the owners of their keys: each demand is a take that its key's owner prepares
// as it decides any take, all of them at the same time. If all pass, all are committed. Else they are aborted.
// docs/design/owners.md has the protocol.

// suitOwners reports whether each of charges can be decided by the owner of its key. What is in a cell can't: a
// bucket that a unit is given back to has drained less meanwhile than one that never held it.
func (e *Engine) suitOwners(charges []charge) bool {
	if e.exclusive != nil || e.opts.Owners == nil {
		return false
	}
	return !slices.ContainsFunc(charges, func(c charge) bool { return !c.isPlain() || c.plan.Cell || c.cost < 1 })
}

// byOwners decides charges, which suit owners, all or none of them.
func (e *Engine) byOwners(ctx context.Context, charges []charge) {
	all := make(several, len(charges))
	for i := range charges {
		all[i] = &charges[i]
	}
	if charges[0].op != count.OpTake { // what is recorded is not undone
		all.each(func(c *charge) { e.byOwner(ctx, c) })
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	slices.SortFunc(all, func(a, b *charge) int { return bytes.Compare(a.key.Sum[:], b.key.Sum[:]) })
	e.prepareAll(ctx, all)
	e.concludeAll(ctx, all)
}

// several are charges that stand or fall together, in the order of their keys.
type several []*charge

// each calls do for all at the same time and waits for them.
func (s several) each(do func(*charge)) {
	if len(s) == 0 {
		return
	}
	parts := make([]*part, len(s))
	for i := range s {
		parts[i] = &part{of: i}
	}
	each(parts, func(p *part) { do(s[p.of]) })
}

// that returns those of s that are such.
func (s several) that(are func(*charge) bool) (some several) {
	for _, c := range s {
		if are(c) {
			some = append(some, c)
		}
	}
	return some
}

// prepareAll has each of all prepared, or says why not all are. Those that are likely to deny come first, as
// they spare the others, together with those that count in any case.
func (e *Engine) prepareAll(ctx context.Context, all several) {
	var first, rest several // each is in one of them: what is known of its key may change meanwhile
	for _, c := range all {
		if !c.canAbort() || e.shared.counted.wasDenied(c.key) {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	first.each(func(c *charge) { e.prepare(ctx, c, true) })
	if all.blocked() {
		return
	}
	rest.each(func(c *charge) { e.prepare(ctx, c, true) })
	if !all.blocked() {
		e.prepareInOrder(ctx, all)
	}
}

// prepareInOrder has those prepared that depend on other calls. It waits for these only while it has prepared
// nothing for a key that comes later: no two calls wait for each other.
func (e *Engine) prepareInOrder(ctx context.Context, all several) {
	at := slices.IndexFunc(all, (*charge).inDoubt)
	if at < 0 {
		return
	}
	e.abort(ctx, all[at+1:].that((*charge).isPrepared))
	for _, c := range all[at:] {
		if c.isPrepared() || !c.canAbort() {
			continue
		}
		if e.prepare(ctx, c, false); all.blocked() {
			return
		}
	}
}

// prepare has the owner of c's key decide it. At once: it does not wait for other calls.
func (e *Engine) prepare(ctx context.Context, c *charge, atOnce bool) {
	c.decision, c.err, c.asked = count.Decision{}, nil, true
	if c.canAbort() {
		c.prepare, c.atOnce = e.ids.Next(e.now()), atOnce
	}
	e.byOwner(ctx, c)
	if c.err != nil {
		return
	}
	if known := &e.shared.counted.denied; c.decision.Stands() {
		known.Remove(c.key)
	} else {
		known.Put(c.key, store.Distant)
	}
}

// canAbort reports whether c does not count if others deny.
func (c *charge) canAbort() bool { return c.plan.Count != policy.CountAll }

// inDoubt reports whether nobody could tell what becomes of c.
func (c *charge) inDoubt() bool { return c.err != nil && errors.Is(c.err, ErrInDoubt) }

// isPrepared reports whether c is prepared, or may be.
func (c *charge) isPrepared() bool {
	if c.prepare == (store.EventID{}) {
		return false
	}
	failed := (*StoreError)(nil)
	return c.err == nil && c.decision.Recorded == count.RecordedYes || errors.As(c.err, &failed) && failed.Recorded != count.RecordedNo
}

// blocked reports whether some of s denies all of them, for good.
func (s several) blocked() bool {
	return slices.ContainsFunc(s, func(c *charge) bool { return c.asked && !c.inDoubt() && c.blocks() })
}

// blocks reports whether c denies the call that it is a part of.
func (c *charge) blocks() bool {
	if c.err != nil {
		return c.plan.onFailure() == policy.OnStoreErrorDeny || beginsAnew(c.err)
	}
	return !c.decision.Stands()
}

// concludeAll commits what was prepared if all pass, or else aborts it. What is not counted is answered as if
// it were checked then.
func (e *Engine) concludeAll(ctx context.Context, all several) {
	if !slices.ContainsFunc(all, func(c *charge) bool { return !c.asked || c.blocks() }) {
		for _, c := range all.that((*charge).isPrepared) {
			e.commit(c)
		}
		return
	}
	if all.blocked() { // whatever becomes of other calls
		for _, c := range all.that((*charge).inDoubt) {
			c.err, c.asked = nil, false
		}
	}
	undone := all.that(func(c *charge) bool { return !c.asked || c.isPrepared() })
	e.abort(ctx, undone.that((*charge).isPrepared))
	undone.that(func(c *charge) bool { return c.err == nil }).each(func(c *charge) { e.foretell(ctx, c) })
}

// foretell answers c, of which nothing counts, as a check would be. If that can't be told, what was told before
// is as good, or nothing is.
func (e *Engine) foretell(ctx context.Context, c *charge) {
	check := *c
	check.op, check.prepare, check.atOnce = count.OpCheck, store.EventID{}, false
	check.decision, check.err = count.Decision{}, nil
	e.byOwner(ctx, &check)
	was := c.decision.Recorded
	switch {
	case check.err == nil:
		c.decision = check.decision
	case c.decision.Policy == nil:
		c.decision = c.plan.Unasked()
	}
	if c.decision.Recorded = count.RecordedNo; was == count.RecordedUnknown {
		c.decision.Recorded = count.RecordedUnknown
	}
}

// commit says that what was prepared for c stays. Should that get lost, the key is in doubt for a while.
func (e *Engine) commit(c *charge) {
	if c.owner == nil {
		e.shared.prepared.commit(c.key, c.prepare)
		return
	}
	c.owner.Tell(&PeerCall{Op: opCommit, Key: c.key, Prepare: c.prepare})
}

// abort gives back what was prepared for each of all, whoever waits for them or not. What can't be given back
// in time is later, and Recorded says so.
func (e *Engine) abort(ctx context.Context, all several) {
	until, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	all.each(func(c *charge) {
		undo := e.undoing(c)
		recorded := count.RecordedNo
		if undo(ctx) != nil {
			recorded = count.RecordedUnknown
			e.undoLater(c, undo)
		}
		if c.err == nil {
			c.decision.Recorded = recorded
		}
		c.prepare = store.EventID{}
	})
}

// undoing returns what gives back what was prepared for c, which is safe to repeat.
func (e *Engine) undoing(c *charge) func(context.Context) error {
	key, id, owner := c.key, c.prepare, c.owner
	if owner == nil {
		return func(ctx context.Context) error { return e.shared.abort(ctx, key, id) }
	}
	return func(ctx context.Context) error {
		var a PeerAnswer
		return owner.Decide(ctx, &PeerCall{Op: opAbort, Key: key, Prepare: id}, &a)
	}
}

// undoLater has undo repeated. Should the owner be gone, what can be told apart is taken out of the store all
// the same.
func (e *Engine) undoLater(c *charge, undo func(context.Context) error) {
	later := e.shared.counted.takeBacks
	later.Push(totals.TakeBack{Abort: undo})
	if id := c.decision.Entry.ID; id != (store.EventID{}) && len(c.plan.Logs) > 0 {
		later.Push(totals.TakeBack{Write: &store.Write{
			Key: c.key, Level: c.plan.Consistency.Write, Logs: c.plan.logWrites, Remove: []store.EventID{id},
		}})
	}
}

// patience is the least time, in parts of the store timeout, in which who is in doubt asks once more.
const patience = 8

// mayAskAgain reports whether c depends on other calls, and has time to be asked again.
func (e *Engine) mayAskAgain(ctx context.Context, c *charge) bool {
	if c.atOnce || !c.inDoubt() || ctx.Err() != nil {
		return false
	}
	until, ok := ctx.Deadline()
	return ok && time.Until(until) > e.opts.StoreTimeout/patience
}
