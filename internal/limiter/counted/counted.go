package counted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// counted decides batches over a store that instances share. An owner decides by the states of its keys in memory: see
// owned. All others write first and then count: they write the batch's units, read all units of the key, and take back
// those of their own units that do not fit. As long as every read sees every acknowledged write, no number of instances
// admits more than the limit: of the batches that admit units, consider the one whose write was acknowledged last. Its
// read saw every unit that the others admitted. docs/design/write-then-count.md has the whole proof, and the reason for
// each step.
type counted struct {
	store     store.Store
	tallies   *totals.Totals // the same store; under policies with running totals, it writes these instead of additions
	ids       *store.EventIDs
	opts      *demand.Settings
	denials   *denied.Denials
	resets    bounded.Recent[store.Instant] // latest resets of keys: units of an earlier epoch must be written again
	takeBacks *totals.TakeBacks
	owned     owned          // states of the keys that this instance owns
	behind    *behind        // units that were admitted from these states and are not written yet
	prepared  prepared.Units // units that are to be committed or aborted
}

// Bounds of one decision over a shared store.
const (
	// retryWithin is the longest wait before the only retry of a denial that may be due to units that other instances
	// are about to take back.
	retryWithin = 10 * time.Millisecond
	// resetRounds is the number of times that units are written if resets remove them before they are read. More than
	// one reset within a decision is abuse.
	resetRounds = 3
)

func newCounted(store store.Store, ids *store.EventIDs, opts *demand.Settings) *counted {
	tallies := totals.New(store, ids, opts.Timing)
	c := &counted{
		store: tallies, tallies: tallies, ids: ids, opts: opts, takeBacks: totals.NewTakeBacks(tallies, opts.StoreTimeout),
	}
	c.denials = denied.New(opts, c.prepared.Doubted)
	c.owned = owned{opts: opts, began: time.Now(), prepared: &c.prepared}
	return c
}

// check decides r at the present instant, and records nothing.
func (c *counted) check(ctx context.Context, r *demand.Charge) {
	if c.denials.Recall(r) {
		return
	}
	batch := []*demand.Charge{r}
	if r.Term.Owned() {
		c.owned.cold.Add(1)
	}
	_, _ = c.checkBatch(ctx, &r.Target, batch)
}

// decide decides all requests of batch, which are for t, by the store.
func (c *counted) decide(ctx context.Context, t *demand.Target, batch []*demand.Charge) {
	term := batch[0].Term
	if term.Owned() {
		t = c.owned.widened(t)
		c.owned.forget(t.Key) // a state that is in memory will lack this batch's units
	}
	if batch = c.recall(batch); len(batch) == 0 {
		return
	}
	if term.Owned() {
		c.owned.cold.Add(int64(len(batch)))
	}
	if err := term.Note(t.Key, t.Plan.Life); err != nil {
		failAll(batch, count.RecordedNo, store.Unavailable(err))
		return
	}
	retry := c.attempt(ctx, t, batch)
	if len(retry) > 0 && !batch[0].Spent && clock.Pause(ctx, c.opts.Jitter(retryWithin)) == nil {
		c.attemptAgain(ctx, t, retry)
	}
}

// recall denies the requests of batch to which a remembered denial applies, as the batch before may have read the key. It
// returns the other requests.
func (c *counted) recall(batch []*demand.Charge) (rest []*demand.Charge) {
	for _, r := range batch {
		if !c.denials.Recall(r) {
			rest = append(rest, r)
		}
	}
	return rest
}

// attemptAgain decides batch once more. Its requests were denied: if the store fails now, the denials stand.
func (c *counted) attemptAgain(ctx context.Context, t *demand.Target, batch []*demand.Charge) {
	denials := make([]count.Decision, len(batch))
	for i, r := range batch {
		denials[i], r.Denied = r.Decision, true
	}
	c.attempt(ctx, t, batch)
	for i, r := range batch {
		if r.Err != nil {
			r.Decision, r.Err = denials[i], nil
		}
	}
}

// attempt decides batch. It returns the denied requests that deserve a retry, because their denial may be due to units that
// other instances are about to take back.
func (c *counted) attempt(ctx context.Context, t *demand.Target, batch []*demand.Charge) (retry []*demand.Charge) {
	batch, retry = c.readFirst(ctx, t, batch)
	if len(batch) == 0 {
		return retry
	}
	changes := c.owned.changes.Of(&t.Key)
	own, state, ok := c.place(ctx, t, batch)
	if !ok {
		return retry
	}
	refused, provisional := c.judge(t, own, &state)
	if len(t.Plan.Logs) > 0 {
		if until := t.Plan.FullUntil(&state, own.now); until > own.now {
			c.denials.Expect(t.Key, until) // after the last unit, the next take will be denied
		}
	}
	c.denials.KeepFull(t, &state, own.now, own.mark)
	if len(refused.batch) > 0 {
		c.denials.Expect(t.Key, store.Distant)
		if !c.takeBack(ctx, t, refused) {
			for _, r := range refused.batch {
				if r.IsDated() { // its claim must not be given up before its event is removed
					r.Decision.Recorded = count.RecordedUnknown
				}
			}
			return retry
		}
		if provisional {
			return append(retry, refused.batch...)
		}
	}
	if term := batch[0].Term; term.Owned() && !provisional && !own.discounted.Unsure {
		c.owned.Keep(t, term, &state, own.now, changes)
	}
	return retry
}

// place stores units for batch and then reads the key. It returns the units, and the state without them. It returns false
// after a failure; the requests then have their errors.
func (c *counted) place(ctx context.Context, t *demand.Target, batch []*demand.Charge) (*units, store.State, bool) {
	own, err := c.newUnits(t, batch)
	if err != nil {
		failAll(batch, count.RecordedNo, err)
		return nil, store.State{}, false
	}
	if batch[0].IsDated() && own.now <= own.epoch {
		batch[0].Err = &demand.DatedError{After: own.epoch}
		return own, store.State{}, false
	}
	batch[0].Spent = batch[0].IsDated()
	for range resetRounds {
		state, ok := c.writeThenRead(ctx, t, own)
		if !ok {
			return own, store.State{}, false
		}
		if !c.renew(t, own, &state) {
			return own, state, c.complete(t, own, &state)
		}
		if batch[0].IsDated() && !own.dated {
			batch[0].Err = &demand.DatedError{After: state.Reset}
			return own, store.State{}, false
		}
	}
	// Resets have removed the units of all rounds. renew has dated new units, which are not written.
	failAll(batch, count.RecordedNo, fmt.Errorf("%w: %d resets of one key within one decision", store.ErrOverloaded, resetRounds))
	return own, store.State{}, false
}

// readFirst denies takes for which there is no room already, without a write, and returns the rest. It reads only if
// that may save a write: for costs above one, because their units would deny other calls until they are taken back, and
// for keys that were over their limit when last seen. It also returns the denied takes that deserve a retry.
func (c *counted) readFirst(ctx context.Context, t *demand.Target, batch []*demand.Charge) (rest, retry []*demand.Charge) {
	large := slices.ContainsFunc(batch, func(r *demand.Charge) bool { return r.Op.MayDeny() && r.Cost > 1 })
	if t.Plan.Count == policy.CountAll || !large && !c.denials.Likely(t.Key) {
		return batch, nil
	}
	provisional, err := c.checkBatch(ctx, t, batch)
	if err != nil {
		return nil, nil
	}
	for _, r := range batch {
		switch {
		case r.Decision.WouldAllow:
			rest = append(rest, r)
		case provisional:
			retry = append(retry, r)
		}
	}
	if len(rest) == len(batch) {
		c.denials.Expect(t.Key, 0)
	}
	return rest, retry
}

// allOwn reports whether all sums in state, which was read for t, are running totals of this process.
func (c *counted) allOwn(t *demand.Target, state *store.State) bool {
	return t.Plan.Tally && c.tallies.AreAllOwn(t.Key, state)
}

// checkBatch decides batch at the present instant, one request after the other, and records nothing. It also reports
// whether some of the counted units may yet be taken back.
func (c *counted) checkBatch(ctx context.Context, t *demand.Target, batch []*demand.Charge) (provisional bool, err error) {
	now, err := c.opts.Timing.Checked()
	if err != nil {
		failAll(batch, count.RecordedNo, err)
		return false, err
	}
	q := t.Plan.Query(t.Key, now, len(batch), nil)
	mark := c.denials.Since(t.Key)
	state, discounted, err := c.read(ctx, t, &q)
	if err != nil {
		failAll(batch, count.RecordedNo, err)
		return false, err
	}
	provisional = c.hasProvisional(t.Plan, &state, now)
	at := max(now, state.Reset+1)
	c.denials.KeepFull(t, &state, at, mark)
	denied := true
	for _, r := range batch {
		t.Plan.Decide(&r.Decision, &state, r.Op, store.EventID{}, at, r.Cost)
		r.Decision.Postpone(at.Sub(now))
		denied = denied && r.Op != count.OpRecord && !r.Decision.WouldAllow
	}
	if denied {
		unsure := discounted.Unsure || c.owned.lately.Within(t.Key, 2*c.opts.StoreTimeout)
		own := batch[0].Op != count.OpCheck && c.allOwn(t, &state)
		c.denials.Put(t, batch[0].Term.Began(), &state, provisional || unsure, own, now, mark)
	}
	return provisional, nil
}

// forgetDenial drops key's remembered denials and its state in memory, because units were given back.
func (c *counted) forgetDenial(key store.Key) {
	c.owned.lately.Note(key)
	c.owned.change(key)
	c.denials.Forget(key)
}

// writeThenRead stores own and then reads the key. It returns the state, own included, or false if the store failed; the
// requests then have their errors.
func (c *counted) writeThenRead(ctx context.Context, t *demand.Target, own *units) (store.State, bool) {
	w := store.Write{Key: t.Key, Level: t.Plan.Consistency.Write, Add: own.counts, Tally: t.Plan.Tally, Span: t.Plan.Span}
	if len(t.Plan.Logs) > 0 && !own.dated {
		w.Events, w.Logs = own.events, t.Plan.LogWrites
		if hold := own.batch[0].Hold; hold > 0 { // it has a batch of its own
			w.Logs = t.Plan.HoldWrites(hold, c.opts)
		}
	}
	q := t.Plan.Query(t.Key, own.now, len(own.batch), nil)
	state, discounted, wrote, err := c.readAfter(ctx, t, &w, &q)
	own.discounted = discounted
	if !wrote {
		c.failUnwritten(t, own, err)
		return store.State{}, false
	}
	if err == nil && ctx.Err() != nil { // an answer that comes too late admits nothing
		err = fmt.Errorf("%w: it answered too late: %w", store.ErrUnavailable, ctx.Err())
	}
	if err != nil {
		c.forget(t, own, count.RecordedYes)
		failAll(own.batch, count.RecordedUnknown, err) // also of records: a reset that was not read may have removed them
		return store.State{}, false
	}
	return state, true
}

// failUnwritten fails the batch of own, whose write failed with err.
func (c *counted) failUnwritten(t *demand.Target, own *units, err error) {
	if errors.Is(err, store.ErrNotStored) && !own.dated {
		failAll(own.batch, count.RecordedNo, err)
		return
	}
	c.forget(t, own, count.FateOf(err))
	failAll(own.batch, count.RecordedUnknown, err)
}

// read returns the state of all of t's keys, without the units that this process will subtract. It also returns these
// units.
func (c *counted) read(ctx context.Context, t *demand.Target, q *store.Query) (store.State, totals.Refused, error) {
	state, discounted, _, err := c.readAfter(ctx, t, &store.Write{}, q)
	return state, discounted, err
}

// readAfter stores w, unless w is empty, and then reads as read does. wrote is false if the write failed.
func (c *counted) readAfter(
	ctx context.Context, t *demand.Target, w *store.Write, q *store.Query,
) (state store.State, discounted totals.Refused, wrote bool, err error) {
	if err := c.behind.writeKey(ctx, t.Key); err != nil {
		return store.State{}, totals.Refused{}, false, fmt.Errorf("%w: %w", store.ErrNotStored, err)
	}
	before := c.takeBacks.Before(q)
	if wrote = len(w.Add) == 0 && len(w.Events) == 0; wrote {
		state, err = c.store.Read(ctx, q)
	} else {
		state, wrote, err = c.store.WriteThenRead(ctx, w, q)
	}
	if err != nil {
		return store.State{}, totals.Refused{}, wrote, err
	}
	discounted = c.takeBacks.Discount(before, &state)
	for _, key := range t.OldKeys {
		older := *q
		older.Key = key
		more, err := c.store.Read(ctx, &older)
		if err != nil {
			return store.State{}, totals.Refused{}, wrote, err
		}
		state.Merge(&more)
	}
	return state, discounted, wrote, nil
}

// complete removes own's units from state, so that each request can be judged in its turn. It returns false, and fails the
// requests, if the read did not return all units of own although the policy's levels promise that.
func (c *counted) complete(t *demand.Target, own *units, state *store.State) bool {
	if t.Plan.Tally {
		own.totals = c.tallies.TotalsOf(t.Key, own.counts)
		c.takeBacks.Recount(own.discounted, state) // the totals may already lack the discounted units
	}
	if removeOwn(t.Plan, own, state, own.now.Add(-c.opts.Timing.Slack())) || !t.Plan.Promising {
		return true
	}
	c.forget(t, own, count.RecordedYes)
	failAll(own.batch, count.RecordedUnknown, fmt.Errorf("%w: a read missed units written before it", store.ErrUnavailable))
	return false
}

// judge decides the batch of own in its order, by a state without own's units. It returns the units that are not admitted,
// and reports whether counted units of other instances may yet be taken back.
func (c *counted) judge(t *demand.Target, own *units, state *store.State) (refused *units, provisional bool) {
	provisional = c.hasProvisional(t.Plan, state, own.now)
	ahead := own.now.Sub(c.opts.Timing.Instant())
	refused = own.filter(func(i int, r *demand.Charge) bool {
		e := &own.events[i]
		t.Plan.Decide(&r.Decision, state, r.Op, e.ID, e.At, r.Cost)
		r.Decision.Postpone(ahead)
		if e.Ends != 0 {
			state.ReplaceEvent(*e)
		}
		r.Decision.Entry = count.Entry{ID: e.ID, At: e.At, Epoch: own.epoch, Cost: r.Cost}
		return r.Decision.Recorded != count.RecordedYes
	})
	if slices.ContainsFunc(own.batch, func(r *demand.Charge) bool { return r.Op == count.OpRecord }) {
		c.denials.Forget(t.Key) // a record counts whatever the limit
	}
	return refused, provisional
}

// hasProvisional reports whether state has events of other instances that are so recent that they may yet be taken back.
// It returns false for counters, which do not show how recent their units are.
func (c *counted) hasProvisional(p *demand.Plan, state *store.State, now store.Instant) bool {
	if p.Counters {
		return false
	}
	final := now.Add(-2*c.opts.StoreTimeout - 2*c.opts.ClockTolerance)
	for i := range state.Logs {
		for _, e := range state.Logs[i].Events {
			if e.At > final && !c.ids.Made(e.ID) {
				return true
			}
		}
	}
	return false
}

// takeBack removes refused's units, whose write was acknowledged. It removes events and running totals at once, and
// reports whether that succeeded; it queues subtractions from counters.
func (c *counted) takeBack(ctx context.Context, t *demand.Target, refused *units) bool {
	w := t.Removal(refused.events)
	if t.Plan.Tally {
		w.Add = totals.Negated(refused.counts)
	} else {
		c.takeBacks.Subtract(t.Adding(refused.counts))
	}
	if len(t.Plan.Logs) == 0 && !t.Plan.Tally {
		return true
	}
	if err := c.store.Write(ctx, w); err != nil {
		c.takeBacks.Push(totals.TakeBack{Write: w.Again(err)})
		return false
	}
	return true
}

// forget queues the removal of units that may be stored although their takes are not admitted, because the store failed.
// Records stay, and so do takes that on_store_error allows. counts says whether the counts of own were stored.
func (c *counted) forget(t *demand.Target, own *units, counts count.Recorded) {
	p := t.Plan
	if p.Count == policy.CountAll {
		return
	}
	allows := p.OnStoreError != policy.OnStoreErrorDeny || p.Mode == policy.ModeShadow
	takes := own.filter(func(_ int, r *demand.Charge) bool { return r.Op.MayDeny() && (r.Denied || !allows) })
	// An addition to a counter that timed out may not be stored, so it is not subtracted: its window ends. A total includes
	// it in either case, and the next total replaces this one.
	if counts == count.RecordedYes || p.Tally && counts == count.RecordedUnknown {
		c.takeBackCounts(t, takes.counts)
	}
	if len(p.Logs) > 0 && len(takes.batch) > 0 {
		c.takeBacks.Push(totals.TakeBack{Write: t.Removal(takes.events), Then: c.afterRemoval(t, false)})
	}
}

// takeBackCounts queues the subtraction of counts that were not admitted.
func (c *counted) takeBackCounts(t *demand.Target, counts []store.Count) {
	if t.Plan.Tally {
		c.takeBacks.Push(totals.TakeBack{Write: t.Adding(c.tallies.Lower(t.Key, counts)), Then: c.afterRemoval(t, false)})
		return
	}
	c.takeBacks.Subtract(t.Adding(counts))
}

func failAll(batch []*demand.Charge, recorded count.Recorded, err error) {
	for _, r := range batch {
		r.Err = &count.StoreError{Recorded: recorded, Err: err}
	}
}
