package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// counted decides over a store that instances share, by writing first and
// counting then: units are written, all that is written is read, and what does
// not fit is taken back. As long as every read meets every write, no more than
// the limit is ever admitted, with any number of instances: of the batches that
// admit anything, consider the one whose write was acknowledged last; its read
// saw every unit that the others admitted. docs/design.md has the whole proof,
// and what each step here is needed for.
type counted struct {
	store     Store
	ids       *eventIDs
	opts      *Options
	flights   flights
	denied    recent[struct{}] // keys that were over their limit when last seen: a read may save a write
	resets    recent[Instant]  // keys that were reset: counting under the right epoch saves a second round
	takeBacks *takeBacks
}

// Bounds of one decision over a shared store.
const (
	// retryWithin is the longest wait before the one retry of a denial that other
	// instances' units in flight may have caused.
	retryWithin = 10 * time.Millisecond
	// resetRounds bounds how often units are written anew because a reset came in
	// between; more than one reset within a decision is no honest use.
	resetRounds = 3
)

func newCounted(store Store, ids *eventIDs, opts *Options) *counted {
	return &counted{store: store, ids: ids, opts: opts, takeBacks: newTakeBacks(store, opts.StoreTimeout)}
}

func (c *counted) decide(ctx context.Context, p *plan, op Op, key Key, cost int64) (Decision, error) {
	r := &request{op: op, cost: cost}
	if op == OpCheck {
		ctx, cancel := context.WithTimeout(ctx, c.opts.StoreTimeout)
		defer cancel()
		_, _ = c.foresee(ctx, p, key, []*request{r})
		return r.decision, r.err
	}
	c.flights.join(ctx, flightKey{p, key}, r, c.opts.StoreTimeout, func(ctx context.Context, batch []*request) {
		c.settle(ctx, p, key, batch)
	})
	return r.decision, r.err
}

// settle answers every request of batch, all of them for key under p.
func (c *counted) settle(ctx context.Context, p *plan, key Key, batch []*request) {
	open := c.attempt(ctx, p, key, batch)
	if len(open) == 0 {
		return
	}
	timer := time.NewTimer(rand.N(retryWithin))
	defer timer.Stop()
	select {
	case <-timer.C:
		c.attemptAgain(ctx, p, key, open)
	case <-ctx.Done():
	}
}

// attemptAgain answers batch, whose requests are denied already. Where the store
// fails now, that denial stands.
func (c *counted) attemptAgain(ctx context.Context, p *plan, key Key, batch []*request) {
	denials := make([]Decision, len(batch))
	for i, r := range batch {
		denials[i], r.denied = r.decision, true
	}
	c.attempt(ctx, p, key, batch)
	for i, r := range batch {
		if r.err != nil {
			r.decision, r.err = denials[i], nil
		}
	}
}

// attempt answers batch. It returns the requests whose denial may be owed to
// units that others are about to take back; they are answered as well.
func (c *counted) attempt(ctx context.Context, p *plan, key Key, batch []*request) (open []*request) {
	batch, open = c.readFirst(ctx, p, key, batch)
	if len(batch) == 0 {
		return open
	}
	own := c.newUnits(p, key, batch)
	for range resetRounds {
		state, ok := c.writeThenRead(ctx, p, key, own)
		if !ok {
			return open
		}
		if !c.renew(p, key, own, &state) {
			return append(open, c.judge(ctx, p, key, own, &state)...)
		}
	}
	// What the earlier rounds wrote is forgotten, and the last one has not been written.
	failWritten(batch, fmt.Errorf("%w: %d resets of one key within one decision", ErrOverloaded, resetRounds))
	return open
}

// readFirst answers the takes that what is counted already leaves no room for,
// without writing anything, and returns the rest. It asks only where it may save
// a write: for costs above one, which would deny others meanwhile, and for keys
// that were over their limit when last seen. Those of the denied that deserve
// another attempt are open.
func (c *counted) readFirst(ctx context.Context, p *plan, key Key, batch []*request) (rest, open []*request) {
	_, wary := c.denied.get(key)
	if p.Count == CountAll || !wary && !slices.ContainsFunc(batch, func(r *request) bool { return r.op == OpTake && r.cost > 1 }) {
		return batch, nil
	}
	unsettled, err := c.foresee(ctx, p, key, batch)
	if err != nil {
		return nil, nil
	}
	for _, r := range batch {
		switch {
		case r.decision.WouldAllow:
			rest = append(rest, r)
		case unsettled:
			open = append(open, r)
		}
	}
	if len(rest) == len(batch) {
		c.denied.remove(key)
	}
	return rest, open
}

// foresee answers batch as if it came now, one after the other, and records
// nothing.
func (c *counted) foresee(ctx context.Context, p *plan, key Key, batch []*request) (unsettled bool, err error) {
	now := InstantOf(c.opts.Now())
	q := p.query(key, now, len(batch), nil)
	state, err := c.read(ctx, &q)
	if err != nil {
		failAll(batch, RecordedNo, err)
		return false, err
	}
	unsettled = c.hasUnsettled(p, &state, now)
	at := max(now, state.Reset+1)
	for _, r := range batch {
		r.decision = p.decide(&state, r.op, EventID{}, at, r.cost)
		r.decision.postpone(at.Sub(now))
	}
	return unsettled, nil
}

// units are what one attempt writes for a batch.
type units struct {
	batch  []*request
	now    Instant
	epoch  Instant // the reset that they are counted under
	events []Event // one for each request of batch, in its order
	counts []Count // the sum of the batch, for each counter
	dated  bool    // events are stored, and count: only the counts are to be written
}

func (c *counted) newUnits(p *plan, key Key, batch []*request) *units {
	epoch, _ := c.resets.get(key)
	own := &units{batch: batch, epoch: epoch}
	c.date(p, own, max(InstantOf(c.opts.Now()), epoch+1))
	return own
}

// date makes own's events and counts for now.
func (c *counted) date(p *plan, own *units, now Instant) {
	own.now, own.dated, own.events = now, false, nil
	for _, r := range own.batch {
		own.events = append(own.events, Event{ID: c.ids.next(now), At: now, Cost: r.cost})
	}
	own.counts = p.appendCounts(nil, own.epoch, now, sumOf(own.batch))
}

// renew makes own anew if a reset that came before the read has forgotten it,
// and reports whether it did: what is forgotten must not be admitted.
func (c *counted) renew(p *plan, key Key, own *units, state *State) bool {
	eventsGone := state.Reset >= own.now
	if !eventsGone && (!p.counters || state.Reset <= own.epoch) {
		return false
	}
	own.epoch = state.Reset
	c.resets.put(key, state.Reset)
	if eventsGone {
		c.date(p, own, state.Reset+1)
	} else {
		own.dated = true
		own.counts = p.appendCounts(nil, own.epoch, own.now, sumOf(own.batch))
	}
	return true
}

func sumOf(batch []*request) int64 {
	sum := int64(0)
	for _, r := range batch {
		sum = addSaturating(sum, r.cost)
	}
	return sum
}

// writeThenRead stores own and returns all that is counted then, own included.
// It is false when the store failed; the requests are answered then.
func (c *counted) writeThenRead(ctx context.Context, p *plan, key Key, own *units) (State, bool) {
	w := Write{Key: key, Level: p.Consistency.Write, Add: own.counts}
	if len(p.logs) > 0 && !own.dated {
		w.Events, w.Logs = own.events, p.logWrites
	}
	if err := c.store.Write(ctx, &w); errors.Is(err, ErrNotStored) && !own.dated {
		failAll(own.batch, RecordedNo, err)
		return State{}, false
	} else if err != nil {
		c.forget(p, key, own, false)
		failAll(own.batch, RecordedUnknown, err)
		return State{}, false
	}
	q := p.query(key, own.now, len(own.batch), nil)
	state, err := c.read(ctx, &q)
	if err == nil && ctx.Err() != nil { // an answer that comes too late admits nothing
		err = fmt.Errorf("%w: it answered too late: %w", ErrUnavailable, ctx.Err())
	}
	if err != nil {
		c.forget(p, key, own, true)
		failWritten(own.batch, err)
		return State{}, false
	}
	return state, true
}

// read returns what is counted, less what this process is going to subtract.
func (c *counted) read(ctx context.Context, q *Query) (State, error) {
	before := c.takeBacks.before(q.Key)
	state, err := c.store.Read(ctx, q)
	if err == nil {
		c.takeBacks.discount(before, &state)
	}
	return state, err
}

// judge answers the batch of own, first come first served, by what state says
// beside own's units, and takes back what was not admitted. It returns the
// requests that deserve another attempt.
func (c *counted) judge(ctx context.Context, p *plan, key Key, own *units, state *State) (open []*request) {
	if complete := strip(p, own, state); !complete && p.promising {
		c.forget(p, key, own, true)
		failWritten(own.batch, fmt.Errorf("%w: a read did not see what was written before it", ErrUnavailable))
		return nil
	}
	unsettled := c.hasUnsettled(p, state, own.now)
	ahead := own.now.Sub(InstantOf(c.opts.Now()))
	refused := own.filter(func(i int, r *request) bool {
		r.decision = p.decide(state, r.op, own.events[i].ID, own.now, r.cost)
		r.decision.postpone(ahead)
		return r.decision.Recorded != RecordedYes
	})
	if len(refused.batch) == 0 {
		return nil
	}
	c.denied.put(key, struct{}{})
	if !c.takeBack(ctx, p, key, refused) || !unsettled {
		return nil
	}
	return refused.batch
}

// strip removes own's units from state. It is false when some were not among what
// was read, though fewer than the limit stood before them: the read missed a write.
func strip(p *plan, own *units, state *State) (complete bool) {
	complete = true
	mine := make(map[EventID]bool, len(own.events))
	for _, e := range own.events {
		mine[e.ID] = true
	}
	for i := range state.Logs {
		log := &state.Logs[i]
		before := len(log.Events)
		log.Events = slices.DeleteFunc(log.Events, func(e Event) bool { return mine[e.ID] })
		seen := before - len(log.Events)
		complete = complete && (seen == len(own.events) || countAfter(log.Events, state.Reset) >= p.logs[i].limit)
	}
	for _, add := range own.counts {
		seen := slices.ContainsFunc(state.Counts, func(c Count) bool {
			return c.Limit == add.Limit && c.Start == add.Start && c.Epoch == add.Epoch && c.Units >= add.Units
		})
		complete = complete && seen
		if seen {
			add.Units = -add.Units
			state.add(add)
		}
	}
	return complete
}

// countAfter returns how many of events are later than bound.
func countAfter(events []Event, bound Instant) (n int) {
	for _, e := range events {
		if e.At > bound {
			n++
		}
	}
	return n
}

// hasUnsettled reports whether state holds events of other instances that are so
// young that they may yet be taken back. Counters do not tell.
func (c *counted) hasUnsettled(p *plan, state *State, now Instant) bool {
	if p.counters {
		return false
	}
	settled := now.Add(-2*c.opts.StoreTimeout - 2*c.opts.ClockTolerance)
	for i := range state.Logs {
		for _, e := range state.Logs[i].Events {
			if e.At > settled && e.ID.node() != c.ids.nodeBits {
				return true
			}
		}
	}
	return false
}

// filter returns the part of u for which keep is true. keep is called for each
// request in turn.
func (u *units) filter(keep func(i int, r *request) bool) *units {
	part := &units{now: u.now, epoch: u.epoch}
	for i, r := range u.batch {
		if keep(i, r) {
			part.batch = append(part.batch, r)
			part.events = append(part.events, u.events[i])
		}
	}
	part.counts = slices.Clone(u.counts)
	for i := range part.counts {
		part.counts[i].Units = sumOf(part.batch)
	}
	return part
}

// takeBack removes refused's units, whose write was acknowledged. Events go at
// once, and it reports whether they did; counters are subtracted from later.
func (c *counted) takeBack(ctx context.Context, p *plan, key Key, refused *units) bool {
	c.takeBacks.subtract(p, key, refused.counts)
	if len(p.logs) == 0 {
		return true
	}
	w := removal(p, key, refused.events)
	if err := c.store.Write(ctx, w); err != nil {
		c.takeBacks.remove(w)
		return false
	}
	return true
}

// forget takes back later what may have been stored for takes that are not
// admitted because the store failed. Records stay, and takes that the policy
// allows in the store's place.
func (c *counted) forget(p *plan, key Key, own *units, acknowledged bool) {
	if p.Count == CountAll {
		return
	}
	allows := p.OnStoreError != OnStoreErrorDeny || p.Mode == ModeShadow
	takes := own.filter(func(_ int, r *request) bool { return r.op == OpTake && (r.denied || !allows) })
	if len(takes.batch) == 0 {
		return
	}
	if acknowledged { // a counter whose add timed out may not have counted: leave it, its window ends
		c.takeBacks.subtract(p, key, takes.counts)
	}
	if len(p.logs) > 0 {
		c.takeBacks.remove(removal(p, key, takes.events))
	}
}

func removal(p *plan, key Key, events []Event) *Write {
	w := &Write{Key: key, Level: p.Consistency.Write, Logs: p.logWrites}
	for _, e := range events {
		w.Remove = append(w.Remove, e.ID)
	}
	return w
}

func failAll(batch []*request, recorded Recorded, err error) {
	for _, r := range batch {
		r.err = &StoreError{Recorded: recorded, Err: err}
	}
}

// failWritten fails batch after its units were stored.
func failWritten(batch []*request, err error) {
	for _, r := range batch {
		failed := &StoreError{Recorded: RecordedUnknown, Err: err}
		if r.op == OpRecord {
			failed.Recorded = RecordedYes
		}
		r.err = failed
	}
}
