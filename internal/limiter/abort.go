package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// opAbort gives back what was prepared, in the flight of its key.
const opAbort count.Op = "abort"

// prepares reports whether r is a take that is to be committed or aborted.
func (r *request) prepares() bool { return r.prepare != (store.EventID{}) && r.op != opAbort }

// askPatiently answers c by what the store has of its key. What is in doubt is asked again once there is one
// doubt less, within half of the time that is left: whoever is told that it still is may ask elsewhere.
func (s *shared) askPatiently(ctx context.Context, c *charge) {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(s.opts.StoreTimeout)
	}
	patience := time.Now().Add(time.Until(until) / 2)
	for {
		r := &request{op: c.op, cost: c.cost, under: c.plan, right: c.right, prepare: c.prepare}
		s.ask(ctx, c.target, r)
		c.decision, c.err = r.decision, r.err
		if c.atOnce || c.err == nil || !errors.Is(c.err, ErrInDoubt) {
			return
		}
		if left := time.Until(patience); left <= 0 || s.prepared.wait(ctx, r.fewer, left, s.opts) != nil {
			return
		}
	}
}

// doubt makes those denials of batch errors that are owed to units which may yet be given back.
func (s *shared) doubt(t *target, batch []*request) {
	var known *known
	var without store.State // the prepared units
	var fewer <-chan struct{}
	looked := false
	for _, r := range batch {
		if r.err != nil || !r.op.MayDeny() || r.decision.WouldAllow || t.plan.Mode != policy.ModeEnforce || t.plan.Count == policy.CountAll {
			continue
		}
		if !looked {
			looked = true
			var in []count.Entry
			if in, fewer = s.prepared.of(t.key); len(in) == 0 {
				return
			}
			if r.right != nil && r.right.Owned() {
				if known = s.counted.owned.of(t, r.right); known != nil {
					without = known.without(in)
				}
			}
		}
		if known == nil || known.fits(&without, r.cost, s.opts) {
			r.err, r.fewer = inDoubt(), fewer
		}
	}
}

// without returns a copy of what k knows, without units.
func (k *known) without(in []count.Entry) store.State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := store.State{Reset: k.state.Reset, Counts: slices.Clone(k.state.Counts), Logs: make([]store.Log, len(k.state.Logs))}
	for i := range s.Logs {
		s.Logs[i] = store.Log{Events: slices.Clone(k.state.Logs[i].Events)}
	}
	k.plan.takeOut(&s, in)
	return s
}

// fits reports whether s, of k, has room for cost now.
func (k *known) fits(s *store.State, cost int64, o *Options) bool {
	var d count.Decision
	return k.plan.Weigh(&d, s, max(o.timing.Instant(), s.Reset+1), cost)
}

// takeOut takes units out of s, whose logs and counters p's are.
func (p *plan) takeOut(s *store.State, units []count.Entry) {
	for i := range s.Logs {
		log := &s.Logs[i]
		log.Sum = 0
		log.Events = slices.DeleteFunc(log.Events, func(e store.Event) bool {
			return slices.ContainsFunc(units, func(u count.Entry) bool { return u.ID == e.ID })
		})
	}
	for i := range units {
		for _, c := range p.AppendCounts(nil, units[i].Epoch, units[i].At, -units[i].Cost) {
			s.Add(c)
		}
	}
}

// abort gives back what id has prepared for key, once. It is safe to repeat.
func (s *shared) abort(ctx context.Context, key store.Key, id store.EventID) error {
	t, right, ok := s.prepared.aborts(key, id, s.opts)
	if !ok {
		return nil
	}
	r := &request{op: opAbort, prepare: id, under: t.plan, right: right}
	s.flights.join(ctx, key, r, s.opts.StoreTimeout, func(ctx context.Context, batch []*request) { s.settle(ctx, &t, batch) })
	return r.err
}

// abortAll does what batch aborts, and returns the others, and what waits until all of it is done. Memory
// changes first: it must not lack a unit that is read once more. What is read while the store still has them
// is not remembered.
func (s *shared) abortAll(ctx context.Context, t *target, batch []*request) (rest []*request, done func()) {
	var ids []store.EventID
	var gone []count.Entry
	for _, r := range batch {
		if r.op != opAbort {
			rest = append(rest, r)
		} else if e, ok := s.prepared.counted(t.key, r.prepare); ok {
			ids, gone = append(ids, r.prepare), append(gone, e)
		}
	}
	if len(gone) == 0 {
		return rest, func() {}
	}
	if err := s.counted.behind.writeKey(ctx, t.key); err != nil { // what is not there yet can't be taken out
		failAborts(batch, err)
		return rest, func() {}
	}
	var storing sync.WaitGroup
	storing.Go(func() { s.giveAllBack(ctx, t, gone) })
	k := s.counted.owned.takeOut(t, batch[0].right, gone)
	if k == nil {
		storing.Wait() // else what is read next is not what is counted
	}
	for _, id := range ids {
		s.prepared.commit(t.key, id)
	}
	return rest, func() {
		storing.Wait()
		if k != nil && s.counted.owned.of(t, k.right) != k {
			s.counted.owned.change(t.key)
		}
	}
}

// failAborts answers the aborts of batch, of which nothing is done: they are safe to repeat.
func failAborts(batch []*request, err error) {
	for _, r := range batch {
		if r.op == opAbort {
			r.err = &StoreError{Recorded: count.RecordedUnknown, Err: err}
		}
	}
}

// takeOut takes units out of what is known of t by right, and returns that. Nil: nothing is known of it any
// more.
func (o *owned) takeOut(t *target, right Right, units []count.Entry) *known {
	k := o.of(t, right)
	if k == nil || !k.takeOut(units) {
		o.change(t.key)
		return nil
	}
	return k
}

// takeOut takes units out of what k knows. False: it can't tell then what there is, as a log that was read up
// to its limit may lack older events, which count once others are gone.
func (k *known) takeOut(units []count.Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.state.Logs {
		if len(k.state.Logs[i].Events) >= k.plan.Logs[i].Limit {
			return false
		}
	}
	k.plan.takeOut(&k.state, units)
	return true
}

// giveAllBack takes what was counted for t out of the store, in one step if that can be. What fails is
// repeated where that can't count twice.
func (s *shared) giveAllBack(ctx context.Context, t *target, gone []count.Entry) {
	own := &units{}
	var sums store.State
	for i := range gone {
		e := &gone[i]
		own.events = append(own.events, store.Event{ID: e.ID})
		for _, c := range t.plan.AppendCounts(nil, e.Epoch, e.At, e.Cost) {
			sums.Add(c)
		}
	}
	own.counts = sums.Counts
	s.counted.takeBack(ctx, t, own)
	s.counted.denials.forget(t.key)
}
