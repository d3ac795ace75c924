package counted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// Decider decides over a store that can't lock a key. It decides requests for one key in batches.
type Decider struct {
	Store   store.Store
	Denials *denied.Denials // of all keys for which this instance is asked
	opts    *demand.Settings
	flights flights
	checks  flights      // for checks of cells: a serial read delays the cell's writes, so concurrent checks share one
	counted *counted     // decides from memory, or by writing and then counting
	serial  *cas.Decider // decides by compare-and-set

	prepared *prepared.Units // units of calls of several demands
}

// New returns the Decider over store of an engine with these settings.
func New(store store.Store, ids *store.EventIDs, opts *demand.Settings) *Decider {
	counted := newCounted(store, ids, opts)
	s := &Decider{
		Store: store, Denials: counted.denials, opts: opts,
		flights: flights{timeout: opts.StoreTimeout, together: opts.Together},
		checks:  flights{timeout: opts.StoreTimeout, together: opts.Together},
		counted: counted,
		serial:  cas.New(store, ids, opts, counted.denials),

		prepared: &counted.prepared,
	}
	s.flights.decide, s.checks.decide = s.decideBatch, s.serial.Check
	counted.behind = &behind{tallies: counted.tallies, serial: s.serial, owned: &counted.owned, opts: opts}
	counted.owned.small.behind = counted.behind
	return s
}

// Decide decides one charge at now, under its term, and fills in its decision and error. If the decision is in doubt, it
// tries again whenever a doubt has been resolved. It does so for half of the remaining time, so that the caller has time
// to ask elsewhere after an ErrInDoubt.
func (s *Decider) Decide(ctx context.Context, c *demand.Charge, now store.Instant) {
	if c.Op == count.OpCheck {
		s.decideCheck(ctx, c, now)
		return
	}
	if s.counted.owned.answer(c, now) {
		return
	}
	left := s.opts.StoreTimeout
	if until, ok := ctx.Deadline(); ok {
		left = time.Until(until)
	}
	patience := time.Now().Add(left / 2)
	for {
		c.Err, c.Denied, c.Spent, c.Turn = nil, false, false, nil
		if c.Asked && left < s.opts.StoreTimeout-time.Millisecond {
			s.flights.joinOrLeave(ctx, c, count.RecordedUnknown) // its call began a while ago
		} else {
			_ = s.flights.join(ctx, c)
		}
		if !errors.Is(c.Err, prepared.ErrInDoubt) {
			return
		}
		if c.Spent {
			c.Err = &demand.DatedError{}
			return
		}
		if left = time.Until(patience); c.AtOnce || left <= 0 || s.prepared.Wait(ctx, c.Fewer, left, s.opts) != nil {
			return
		}
	}
}

// decideCheck is Decide for a check, which is never in doubt.
func (s *Decider) decideCheck(ctx context.Context, c *demand.Charge, now store.Instant) {
	doubts := s.prepared.Changes.Of(&c.Key)
	if !s.counted.owned.answer(c, now) {
		limited, cancel := clock.Within(ctx, s.opts.StoreTimeout)
		defer cancel()
		s.check(limited, c)
	}
	if c.Err == nil && !c.Decision.WouldAllow && (s.prepared.Doubted(c.Key) || s.prepared.Changes.Of(&c.Key) != doubts) {
		s.checkWithoutPrepared(ctx, c)
	}
}

// check decides c by the state of its key in the store, within ctx.
func (s *Decider) check(ctx context.Context, c *demand.Charge) {
	if !c.Plan.Cell {
		s.counted.check(ctx, c)
		return
	}
	s.checks.joinOrLeave(ctx, c, count.RecordedNo)
}

// flights gathers the requests for one key that arrive while another one is being decided into a batch, which takes one
// write and one read. This process never decides two batches of a key at the same time.
type flights struct {
	timeout  time.Duration
	decide   func(ctx context.Context, batch []*demand.Charge)                  // decides a batch
	together func(ctx context.Context, calls []context.Context) context.Context // of Settings

	mu   sync.Mutex
	keys map[store.Key]*flight
}

// flight is one key's queue. It exists while a batch of the key is in progress.
type flight struct{ waiting []*demand.Charge }

// Bounds of a flight.
const (
	maxJoined  = 64   // requests in one batch of a log: its rows stay under Cassandra's 5 KiB warning
	maxSummed  = 1024 // requests in one batch of an owner's sums: however many they are, the owner writes one row
	maxWaiting = 4096 // requests that wait for one key; more would wait beyond the store timeout
	givingBack = 64   // divisor of the store timeout: in this part of it, a call of several demands gives units back
)

// join adds r to a batch, and returns when r is decided, within the timeout. r waits at most half of it for its batch to
// begin, so that under any load the leader of a batch has time to decide it. If ctx ends before that, r is not counted, and
// other requests are not affected. If ctx ends later, join waits for the decision, unless r.Leaves: then it returns false
// at once, and the batch goes on using r.
func (f *flights) join(ctx context.Context, r *demand.Charge) (decided bool) {
	base, timeout := ctx, f.timeout
	if !r.IsAlone() {
		base = context.WithoutCancel(ctx) // the batch must not depend on one caller
	}
	if r.Asked { // after a failure, the call needs time to give the units of other demands back
		timeout -= f.timeout / givingBack
	}
	leading, cancel := clock.Within(base, timeout)
	if ctx.Err() != nil {
		cancel()
		r.Err = tooLate(ctx.Err())
		return true
	}
	r.Until, _ = ctx.Deadline()
	if f.together != nil {
		r.Ctx = ctx
	}
	batch, err := f.enter(r)
	if err == nil && batch == nil {
		batch, decided, err = f.wait(ctx, r, f.timeout/2)
	}
	switch {
	case err != nil:
		r.Err, decided = err, true
	case len(batch) > 0 && r.Leaves:
		led := make(chan struct{})
		go func() {
			defer close(led)
			defer cancel()
			f.lead(leading, batch)
		}()
		select {
		case <-led:
			return true
		case <-ctx.Done():
			return false
		}
	case len(batch) > 0:
		f.lead(leading, batch)
		decided = true
	}
	cancel()
	return decided
}

// joinOrLeave is join for a caller that does not wait after ctx has ended. Then r fails with recorded, while its batch goes
// on.
func (f *flights) joinOrLeave(ctx context.Context, r *demand.Charge, recorded count.Recorded) {
	one := *r
	one.Leaves = true
	if f.join(ctx, &one) {
		*r = one
		return
	}
	r.Err = &count.StoreError{Recorded: recorded, Err: store.Unavailable(ctx.Err())}
}

// alone calls do while no batch of key is in progress. It returns an error without calling do if it would have to wait too
// long.
func (s *Decider) alone(ctx context.Context, key store.Key, do func(context.Context) error) error {
	r := &demand.Charge{Target: demand.Target{Key: key}, Alone: true, Does: do}
	_ = s.flights.join(ctx, r)
	return r.Err
}

// enter returns a batch for r to lead at once, or queues r and returns none.
func (f *flights) enter(r *demand.Charge) ([]*demand.Charge, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue, busy := f.keys[r.Key]
	if !busy {
		if f.keys == nil {
			f.keys = make(map[store.Key]*flight)
		}
		f.keys[r.Key] = &flight{}
		return []*demand.Charge{r}, nil
	}
	if len(queue.waiting) == maxWaiting {
		err := fmt.Errorf("%w: %d requests wait for one key", store.ErrOverloaded, maxWaiting)
		return nil, &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	r.Turn = make(chan []*demand.Charge, 1)
	queue.waiting = append(queue.waiting, r)
	return nil, nil
}

// wait returns the batch for r to lead, or no batch once r is decided by another leader. It returns an error if r's time is
// over before its batch begins. If r leaves, decided is false, without an error.
func (f *flights) wait(ctx context.Context, r *demand.Charge, atMost time.Duration) (batch []*demand.Charge, decided bool, err error) {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case batch := <-r.Turn:
		return batch, true, nil
	case <-limited.Done():
	}
	if f.leave(r) {
		return nil, false, tooLate(limited.Err())
	}
	var left <-chan struct{}
	if r.Leaves {
		left = ctx.Done()
	}
	select {
	case batch := <-r.Turn:
		return batch, true, nil
	case <-left:
		return nil, false, nil
	}
}

// tooLate returns the error of a request whose time was over before its batch began.
func tooLate(cause error) error {
	err := fmt.Errorf("%w: waiting for earlier requests of the same key: %w", store.ErrUnavailable, cause)
	return &count.StoreError{Recorded: count.RecordedNo, Err: err}
}

// leave removes r from the queue. It returns false if its batch has begun.
func (f *flights) leave(r *demand.Charge) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue, ok := f.keys[r.Key]
	if !ok {
		return false
	}
	i := slices.Index(queue.waiting, r)
	if i < 0 {
		return false
	}
	queue.waiting = slices.Delete(queue.waiting, i, i+1)
	return true
}

// lead decides batch, whose first request is the caller's own. Then it appoints the next leader, and wakes the callers of
// the other requests.
func (f *flights) lead(ctx context.Context, batch []*demand.Charge) {
	defer func() {
		f.passOn(batch[0].Key)
		for _, r := range batch[1:] {
			close(r.Turn)
		}
	}()
	if f.together != nil && len(batch) > 1 {
		ctx = f.jointContext(ctx, batch)
	}
	f.decide(ctx, batch)
}

// jointContext returns ctx as the context of all requests of batch.
func (f *flights) jointContext(ctx context.Context, batch []*demand.Charge) context.Context {
	calls := make([]context.Context, len(batch))
	for i, r := range batch {
		calls[i] = r.Ctx
	}
	return f.together(ctx, calls)
}

// passOn makes the first waiting request the leader of the next batch.
func (f *flights) passOn(k store.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.keys[k]
	if len(queue.waiting) > 0 {
		queue.dropLate()
	}
	if len(queue.waiting) == 0 {
		delete(f.keys, k)
		return
	}
	n := 1
	first := queue.waiting[0]
	for n < len(queue.waiting) && canBatch(first, queue.waiting[n]) && n < maxBatch(first) {
		n++
	}
	next := slices.Clone(queue.waiting[:n])
	queue.waiting = slices.Delete(queue.waiting, 0, n)
	next[0].Turn <- next
}

// dropLate fails the waiting requests whose time is over: if this process was suspended, their callers may not have noticed
// that yet.
func (f *flight) dropLate() {
	now := time.Now()
	f.waiting = slices.DeleteFunc(f.waiting, func(r *demand.Charge) bool {
		late := !r.Until.IsZero() && now.After(r.Until)
		if late {
			r.Err = tooLate(context.DeadlineExceeded)
			close(r.Turn)
		}
		return late
	})
}

// canBatch reports whether one batch can hold r and other: both under the same version of the policy and the same term, and
// none of them alone.
func canBatch(r *demand.Charge, other *demand.Charge) bool {
	return !r.IsAlone() && !other.IsAlone() && r.Plan == other.Plan && r.Term == other.Term
}

// maxBatch returns the maximum size of a batch with r.
func maxBatch(r *demand.Charge) int {
	if r.Term.Owned() && len(r.Plan.Logs) == 0 {
		return maxSummed
	}
	return maxJoined
}

// decideBatch decides all charges of batch, which are for one target.
func (s *Decider) decideBatch(ctx context.Context, batch []*demand.Charge) {
	if batch[0].Does != nil {
		batch[0].Err = batch[0].Does(ctx)
		return
	}
	t := &batch[0].Target
	prepares := slices.ContainsFunc(batch, func(r *demand.Charge) bool { return r.Prepare != store.EventID{} })
	if prepares { // for calls of several demands
		rest, done := s.abortAll(ctx, t, batch)
		defer done()
		if batch = s.prepared.Begin(t, rest, s.opts); len(batch) == 0 {
			return
		}
	}
	switch k, err := s.counted.known(ctx, t, batch); {
	case err != nil:
		failAll(batch, count.RecordedNo, err)
	case k != nil:
		s.counted.decideOwned(ctx, t, batch, k)
	case t.Plan.Cell:
		s.decideInCell(ctx, t, batch)
	default:
		s.counted.decide(ctx, t, batch)
	}
	if prepares {
		s.prepared.End(t.Key, batch)
	}
	if s.prepared.Number.Load() > 0 {
		s.failDoubtful(t, batch)
	}
}

// Run takes back units that were not admitted, and writes units that were admitted from memory, until ctx ends. Then it
// finishes this work.
func (s *Decider) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.counted.takeBacks.Run(ctx) })
	all.Go(func() { s.counted.behind.run(ctx) })
	all.Wait()
}

// VerifyTerm verifies term, unless that was done more recently than the time for which admitted units may wait to be
// written.
func (s *Decider) VerifyTerm(ctx context.Context, term owner.Term) error {
	return s.counted.behind.verifyTerm(ctx, term)
}

// SteadyFor returns the time from now for which a denied request of t would get the same answer; 0 if that is unknown.
func (s *Decider) SteadyFor(t *demand.Target, term owner.Term, now store.Instant) time.Duration {
	return s.counted.owned.steadyFor(t, term, now)
}

// Commit makes the units permanent that are prepared for key under id.
func (s *Decider) Commit(key store.Key, id store.EventID) { s.prepared.Commit(key, id) }

// UndoLater queues undo, which gives back c's prepared units, to be called until it succeeds. In case the owner has died, it
// also queues the removal of c's event from the store.
func (s *Decider) UndoLater(c *demand.Charge, undo func(context.Context) error) {
	s.counted.takeBacks.Push(totals.TakeBack{Abort: undo})
	if id := c.Decision.Entry.ID; id != (store.EventID{}) && len(c.Plan.Logs) > 0 {
		s.counted.takeBacks.Push(totals.TakeBack{Write: c.Removal([]store.Event{{ID: id}}), Then: s.counted.afterRemoval(&c.Target, true)})
	}
}

// Later repeats do, which is safe to repeat, until it returns nil, or has failed for too long.
func (s *Decider) Later(do func(context.Context) error) {
	s.counted.takeBacks.Push(totals.TakeBack{Abort: do})
}

// Changed drops the remembered denials and the state of key, because units were given back.
func (s *Decider) Changed(key store.Key) { s.counted.forgetDenial(key) }

// LastReset returns the latest reset of key that this instance has seen; 0: none.
func (s *Decider) LastReset(key store.Key) store.Instant {
	at, _ := s.counted.resets.Get(key)
	return at
}

// Remembered returns the number of keys whose states this instance has in memory as their owner.
func (s *Decider) Remembered() int { return s.counted.owned.remembered() }

// ColdReads returns the number of decisions of this instance as an owner for which it had to read the key from the store,
// because the key was not in memory.
func (s *Decider) ColdReads() int64 { return s.counted.owned.cold.Load() }

// Behind returns figures on the write-behind.
func (s *Decider) Behind() Behind {
	b := s.counted.behind
	found := Behind{Waiting: int(b.keys.Load()), Written: b.written.Load(), Failed: b.failed.Load()}
	for i := range b.shards {
		found.Lag = max(found.Lag, b.shards[i].lag())
	}
	return found
}

// Flush writes the admitted units that are not written yet, and the small keys of terms that have ended, until ctx ends. It
// also stores totals without the units that they have ahead.
func (s *Decider) Flush(ctx context.Context) {
	s.counted.owned.queueSmallOfEndedTerms(ctx)
	s.counted.behind.flush(ctx)
	s.counted.tallies.DropAhead(ctx)
	s.counted.owned.commons.clear()
}

// failDoubtful replaces denials of batch by prepared.ErrInDoubt if they may be due to prepared units, which may yet be given
// back.
func (s *Decider) failDoubtful(t *demand.Target, batch []*demand.Charge) {
	var known *keyState
	var without *store.State // known without the prepared units
	var fewer <-chan struct{}
	looked := false
	for _, r := range batch {
		if r.Err != nil || !r.Op.MayDeny() || r.Decision.WouldAllow || t.Plan.Mode != policy.ModeEnforce || t.Plan.Count == policy.CountAll {
			continue
		}
		if !looked {
			looked = true
			var in []count.Entry
			if in, fewer = s.prepared.Of(t.Key); len(in) == 0 {
				return
			}
			if r.Term.Owned() {
				if known = s.counted.owned.lookup(t, r.Term); known != nil {
					without = known.without(in, s.opts.Timing.Instant())
				}
			}
		}
		if known == nil || t.Plan.Fits(without, max(s.opts.Timing.Instant(), without.Reset+1), r.Cost) {
			r.Decision, r.Err, r.Fewer = count.Decision{}, prepared.InDoubt(), fewer
		}
	}
}
