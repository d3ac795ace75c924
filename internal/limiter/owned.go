package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// owned is what this instance knows of the keys that it owns: all that is counted for them. It
// decides from memory, and writes what it admits before it answers. What is known of a key belongs
// to the right that it was read by, and means nothing under another.
type owned struct {
	opts     *Options
	prepared *prepared
	changes  changes      // what was given back of keys: a read that was under way then is not remembered
	cold     atomic.Int64 // decisions that had to read their key, as nothing was known of it
	shards   [ownedShards]ownedShard
}

// ownedShard is a part of the keys.
type ownedShard struct {
	mu         sync.Mutex
	young, old map[store.Key]*known
	events     int                     // in young, and that were added to it since
	open       map[store.Key]time.Time // until when a key is not remembered
}

// known is all that is counted for a key.
type known struct {
	right Right
	plan  *plan
	until time.Time // after which it is read again; zero: never
	read  time.Time // when it was

	mu      sync.Mutex
	writing int // requests whose units are not acknowledged yet
	state   store.State
	latest  store.Instant // by which it was decided last
	built   attempts      // versions of the key's cell that what is known came by
}

// DefaultMaxKeys is the MaxKeys of Options that give none: some 500 bytes each, 512 MiB in all.
const DefaultMaxKeys = 1 << 20

// Bounds of what is known, beside Options.MaxKeys.
const (
	ownedShards = 64      // large enough that two cores rarely meet
	maxEvents   = 1 << 16 // of 40 bytes, in the logs of each generation of a shard: 320 MiB in all
	maxOpen     = 1 << 12 // open keys of a shard; beyond, none is opened
	// spareEvents is how many events are kept beyond a limit: as many as a batch may add.
	spareEvents = maxJoined
)

// openFor returns for how long a key that is opened is not remembered: who opened it has one store
// timeout of its own for all that it does, which it measures from an earlier moment.
func (o *owned) openFor(theirs time.Duration) time.Duration {
	return 2 * max(theirs, o.opts.StoreTimeout)
}

func (o *owned) shard(key store.Key) *ownedShard { return &o.shards[key.Prefix()>>32%ownedShards] }

// of returns what is known of t by right; nil: nothing, and it has to be read.
func (o *owned) of(t *target, right Right) *known {
	sh := o.shard(t.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k, ok := sh.young[t.key]
	if !ok {
		if k, ok = sh.old[t.key]; ok {
			sh.put(t.key, k, o.mostKnown())
		}
	}
	if !ok || k.right != right || k.plan != t.plan || !k.until.IsZero() && time.Now().After(k.until) {
		return nil
	}
	return k
}

func (o *owned) put(key store.Key, k *known) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.put(key, k, o.mostKnown())
}

// mostKnown returns how many keys each generation of a shard holds.
func (o *owned) mostKnown() int { return max(1, o.opts.MaxKeys/(2*ownedShards)) }

// put remembers k. What falls out for it is read again when it is asked for, as what is forgotten is: its units
// on their way to the store, and what is prepared for it, are kept elsewhere.
func (sh *ownedShard) put(key store.Key, k *known, most int) {
	if sh.young == nil || len(sh.young) >= most {
		sh.age()
	}
	sh.young[key] = k
	delete(sh.old, key)
	sh.grow(k.events())
}

// age begins another generation: what is not asked for in it is forgotten with the next.
func (sh *ownedShard) age() { sh.old, sh.young, sh.events = sh.young, make(map[store.Key]*known), 0 }

// grow notes that events were added to young.
func (sh *ownedShard) grow(events int) {
	if sh.events += events; sh.events > maxEvents {
		sh.age()
	}
}

// events returns how many k holds.
func (k *known) events() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.state.Logs {
		n += len(k.state.Logs[i].Events)
	}
	return n
}

// grew notes that events were added to what is known of key.
func (o *owned) grew(key store.Key, events int) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.grow(events)
}

// remembered returns of how many keys something is known.
func (o *owned) remembered() (n int) {
	for i := range o.shards {
		sh := &o.shards[i]
		sh.mu.Lock()
		n += len(sh.young) + len(sh.old)
		sh.mu.Unlock()
	}
	return n
}

// Remembered returns of how many keys e remembers, as their owner, all that is counted.
func (e *Engine) Remembered() int {
	if e.shared == nil {
		return 0
	}
	return e.shared.counted.owned.remembered()
}

// ColdReads returns how many decisions e has made as the owner of their key that had to read it from the
// store first, as e remembered nothing of it.
func (e *Engine) ColdReads() int64 {
	if e.shared == nil {
		return 0
	}
	return e.shared.counted.owned.cold.Load()
}

// forgetIf ends what is known of key, if that is k.
func (o *owned) forgetIf(key store.Key, k *known) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, generation := range []map[store.Key]*known{sh.young, sh.old} {
		if generation[key] == k {
			delete(generation, key)
		}
	}
}

// forget ends what is known of key.
func (o *owned) forget(key store.Key) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.young, key)
	delete(sh.old, key)
}

// change ends what is known of key, and what is being read of it: something was given back.
func (o *owned) change(key store.Key) {
	o.changes.note(&key)
	o.forget(key)
}

// open forgets key, and has nothing of it remembered for a while, in which somebody with that store
// timeout counts for it.
func (o *owned) open(key store.Key, theirs time.Duration) error {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.young, key)
	delete(sh.old, key)
	now := time.Now()
	if len(sh.open) >= maxOpen {
		for other, until := range sh.open {
			if now.After(until) {
				delete(sh.open, other)
			}
		}
	}
	if len(sh.open) >= maxOpen {
		return fmt.Errorf("%w: %d keys are open", store.ErrOverloaded, maxOpen)
	}
	if sh.open == nil {
		sh.open = make(map[store.Key]time.Time)
	}
	sh.open[key] = now.Add(o.openFor(theirs))
	return nil
}

// life is for how long what is counted for a key of p matters, by any clock.
func (p *plan) life() time.Duration { return min(p.resetTTL+time.Minute, longestLife) }

// longestLife is that of any policy: two of the longest windows, and what clocks may differ.
const longestLife = 2*policy.MaxWindow + 24*time.Hour

// remembers reports whether what is counted for t is all there is, if it is known: by its levels, and
// under one key.
func (t *target) remembers() bool {
	return t.plan.promising && t.plan.regional && len(t.old) == 0 && t.plan.countsOutsideCells()
}

// new returns what is known of t by right if nothing is counted for it: nil if that is not sure.
func (o *owned) new(t *target, right Right, now store.Instant) *known {
	if !t.remembers() || t.plan.Cell || !right.IsNew(t.key, t.plan.life()) {
		return nil
	}
	return &known{
		right: right, plan: t.plan, state: store.State{Logs: make([]store.Log, len(t.plan.Logs))}, latest: now, read: time.Now(),
	}
}

// keep remembers state, which is all that is counted for t by right, if it is certain to be: it was read
// after so many changes. It keeps state itself.
func (o *owned) keep(t *target, right Right, state *store.State, now store.Instant, changes uint64) {
	if !t.remembers() || holdsAnything(state) {
		return
	}
	k := &known{right: right, plan: t.plan, latest: now}
	k.state = store.State{Logs: state.Logs, Counts: state.Counts, Reset: state.Reset, Levels: state.Levels}
	if t.plan.Cell {
		k.built.add(state.Cell.Version)
	}
	began := time.Now()
	k.read = began
	sh := o.shard(t.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	until, wasOpen := sh.open[t.key]
	if wasOpen && began.Before(until) || o.changes.of(&t.key) != changes {
		return
	}
	// Others may still take back what they counted before this instance owned the key, or while it
	// was open.
	settled := right.Began().Add(2 * o.opts.StoreTimeout)
	if later := until.Add(2 * o.opts.StoreTimeout); wasOpen && later.After(settled) {
		settled = later
	}
	if t.plan.Counters && began.Before(settled) {
		k.until = began.Add(o.opts.StoreTimeout / unsettledPart)
	}
	if wasOpen && began.After(settled) {
		delete(sh.open, t.key)
	}
	sh.put(t.key, k, o.mostKnown())
}

// isOpen reports whether nothing of key is to be remembered.
func (o *owned) isOpen(key store.Key) bool {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	until, ok := sh.open[key]
	return ok && time.Now().Before(until)
}

// holdsAnything reports whether s has holds, which others may settle or end.
func holdsAnything(s *store.State) bool {
	for i := range s.Logs {
		for j := range s.Logs[i].Events {
			if s.Logs[i].Events[j].Ends != 0 {
				return true
			}
		}
	}
	return false
}

// answer decides c at now if memory does without writing: a check, or a take that is over the
// limit by units that are acknowledged.
func (o *owned) answer(d *count.Decision, c *charge, now store.Instant) (decided bool) {
	if c.op == count.OpRecord || c.plan.Count == policy.CountAll && c.op == count.OpTake || !c.right.Owned() || !c.plan.countsOutsideCells() {
		return false
	}
	k := o.of(&c.target, c.right)
	if k == nil && c.op == count.OpCheck && !o.isOpen(c.key) {
		k = o.new(&c.target, c.right, now)
	}
	if k == nil {
		return false
	}
	changed := o.prepared.changes.of(&c.key)
	if c.op == count.OpTake && o.prepared.doubted(c.key) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.opts.timing.IsSetBack(k.latest, now) {
		return false
	}
	at := max(now, k.state.Reset+1)
	if c.op == count.OpTake {
		return k.writing == 0 && !k.isOld() && c.plan.Refuse(d, &k.state, c.cost, at, now) && changed == o.prepared.changes.of(&c.key)
	}
	c.plan.Decide(d, &k.state, count.OpCheck, store.EventID{}, at, c.cost)
	d.Postpone(at.Sub(now))
	d.Remembered = true
	return true
}

// isOld reports whether k was read so long ago that it is read again before it denies anything: some
// of what was counted then may have been taken back since, by others or by this instance itself.
func (k *known) isOld() bool { return time.Since(k.read) > maxDenialAge }

// denies reports whether k leaves no room for some of batch at now.
func (k *known) denies(batch []*request, now store.Instant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := max(now, k.state.Reset+1)
	return slices.ContainsFunc(batch, func(r *request) bool {
		var d count.Decision
		return r.op.MayDeny() && !k.plan.Weigh(&d, &k.state, at, r.cost)
	})
}

// known returns what is known of t by right, for batch, which leads t's flight: read anew if it is old
// and denies. Nil: it has to be read, by who counts.
func (c *counted) known(ctx context.Context, t *target, batch []*request, right Right) *known {
	k := c.owned.of(t, right)
	now, err := c.opts.timing.Checked()
	switch {
	case err != nil:
		return k
	case k == nil:
		if k = c.owned.new(t, right, now); k != nil {
			c.owned.put(t.key, k)
		}
		return k
	case c.opts.timing.IsSetBack(k.latest, now): // what was forgotten by a clock that was ahead counts again
		return nil
	case !k.isOld() || !k.denies(batch, now):
		return k
	}
	changes := c.owned.changes.of(&t.key)
	q := t.plan.Query(t.key, now, len(batch), nil)
	state, _, err := c.read(ctx, t, &q)
	if err != nil {
		return k
	}
	c.owned.forget(t.key)
	if !c.hasUnsettled(t.plan, &state, now) {
		c.owned.keep(t, right, &state, now, changes)
	}
	return c.owned.of(t, right)
}

// admit decides batch over what is known, and returns the units that are to be written.
func (k *known) admit(t *target, batch []*request, ids *store.EventIDs, now store.Instant, o *Options) *units {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := max(now, k.state.Reset+1)
	own := &units{now: at, epoch: k.state.Reset}
	k.prune(at.Add(-o.timing.Slack() - time.Second)) // by as much the clock may be set back without anybody's notice
	for _, r := range batch {
		id := ids.Next(at)
		t.plan.Decide(&r.decision, &k.state, r.op, id, at, r.cost)
		r.decision.Postpone(at.Sub(now))
		if r.decision.Recorded != count.RecordedYes {
			continue
		}
		r.decision.Entry = count.Entry{ID: id, At: at, Epoch: own.epoch, Cost: r.cost}
		own.batch = append(own.batch, r)
		own.events = append(own.events, store.Event{ID: id, At: at, Cost: r.cost})
	}
	k.latest = max(k.latest, now)
	if len(own.batch) > 0 {
		own.counts = t.plan.AppendCounts(nil, own.epoch, at, sumOf(own.batch))
		k.writing++
	}
	return own
}

// written says that the units of a batch are acknowledged.
func (k *known) written() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writing--
}

// prune forgets what no longer counts at now, and what is beyond any limit.
func (k *known) prune(now store.Instant) {
	for i := range k.state.Logs {
		log, p := &k.state.Logs[i], &k.plan.Logs[i]
		gone := 0
		for gone < len(log.Events) && log.Events[gone].At <= now-p.CountsFor {
			gone++
		}
		gone = max(gone, len(log.Events)-p.Limit-spareEvents)
		if gone > 0 {
			*log = log.From(gone)
		}
	}
	counts := k.state.Counts[:0]
	for _, c := range k.state.Counts {
		if c.Expires > now {
			counts = append(counts, c)
		}
	}
	k.state.Counts = counts
}

// settleOwned answers batch by what is known of t.
func (c *counted) settleOwned(ctx context.Context, t *target, batch []*request, k *known) {
	now, err := c.opts.timing.Checked()
	if err != nil {
		failAll(batch, count.RecordedNo, err)
		return
	}
	mark := c.denials.since(t.key)
	own := k.admit(t, batch, c.ids, now, c.opts)
	if len(own.batch) == 0 {
		return
	}
	if len(t.plan.Logs) > 0 {
		c.owned.grew(t.key, len(t.plan.Logs)*len(own.events))
	}
	later, unnoted := t.plan.Cell || t.plan.behind && c.behind.hasRoom(t.key), count.RecordedNo
	if later {
		c.behind.add(t, own, k) // before it is noted: what the tenure's end does not find in time is not admitted
		unnoted = count.RecordedUnknown
	}
	if err := k.right.Note(t.key, t.plan.life()); err != nil {
		c.owned.forget(t.key)
		failAll(own.batch, unnoted, unavailable(err))
		return
	}
	if !later && !c.write(ctx, t, own) {
		return
	}
	k.written()
	if t.plan.OnStoreError == policy.OnStoreErrorLocal {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.denials.keepFull(t, &k.state, max(now, k.state.Reset+1), mark)
	}
}

// write writes own, which is decided by what is known of t. It is false, and answers the requests, when the
// store failed.
func (c *counted) write(ctx context.Context, t *target, own *units) bool {
	w := store.Write{Key: t.key, Level: t.plan.Consistency.Write, Add: own.counts, Tally: t.plan.Tally, Span: t.plan.Span}
	if len(t.plan.Logs) > 0 {
		w.Events, w.Logs = own.events, t.plan.logWrites
	}
	err := c.store.Write(ctx, &w)
	if err == nil && ctx.Err() != nil { // an answer that comes too late admits nothing
		err = fmt.Errorf("%w: it answered too late: %w", store.ErrUnavailable, ctx.Err())
	}
	if err != nil { // nobody knows what is counted until it is read again
		c.owned.forget(t.key)
		c.failUnwritten(t, own, err)
		return false
	}
	return true
}

// rightOf returns the right by which this instance alone decides batch; nil: others do, too.
func (o *owned) rightOf(t *target, batch []*request) Right {
	right := batch[0].right
	if right == nil || !right.Owned() || batch[0].alone || !t.plan.countsOutsideCells() || o.isOpen(t.key) {
		return nil
	}
	return right
}

// open has nothing remembered of key for a while. It returns when no batch that went by memory is
// under way.
func (s *shared) open(ctx context.Context, key store.Key, theirs time.Duration) error {
	r := &request{alone: true}
	var err error
	led := false
	s.flights.join(ctx, key, r, s.opts.StoreTimeout, func(ctx context.Context, _ []*request) {
		led = true
		if err = s.counted.behind.writeKey(ctx, key); err == nil {
			err = s.counted.owned.open(key, theirs)
		}
	})
	if !led && r.err != nil {
		return r.err
	}
	return err
}
