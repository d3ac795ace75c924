package counted

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// owned holds the states of keys that this instance owns. A state has all units that are counted for its key, so the owner
// decides from memory. A state belongs to the term under which it was read, and is not used under another.
type owned struct {
	opts     *demand.Settings
	began    time.Time // the origin of ticks and of common.until
	prepared *prepared.Units
	changes  denied.Changes // of keys whose units were given back: a read that was in progress is not remembered
	lately   denied.Lately  // keys whose units were given back: the store may still have the units, as sums are subtracted from later
	cold     atomic.Int64   // decisions that had to read their key because it was not in memory
	commons  commons
	small    smallKeys
	shards   [ownedShards]ownedShard
}

// ownedShard is a part of the keys.
type ownedShard struct {
	mu         sync.Mutex
	young, old map[store.Key]*keyState // two generations: keys that were used since age was called, and those that were not
	small      map[store.Key]*keyState // see small.go
	events     int                     // number of events that were read or added to the states in young
}

// keyState is the state of a key: all units that are counted for it. There are many, so a keyState fits into 80 bytes, a
// size class of Go's allocator.
type keyState struct {
	*common
	latest store.Instant // the latest instant of a decision

	mu      sync.Mutex
	read    ticks // when it was read
	writing int16 // batches whose units are not acknowledged yet
	small   bool  // the units are only in memory; see small.go

	// The parts of a store.State that most keys have; see open.
	events []store.Event // of the first log
	counts []store.Count
}

// common is the part of a key's state that most keys of a term and a plan share. It is immutable, except that further and
// inCell change like the units, under their lock.
type common struct {
	term owner.Term
	plan *demand.Plan // for which the state was read; it may also serve other plans

	// Few keys use these fields. Each of them has a common of its own.
	until   time.Duration // after owned.began, when the key must be read again; 0: never
	reset   store.Instant
	further []store.Log // all but the first
	inCell  *inCell     // nil: the plan has no cell
}

// commons has the commons that keys share. Keys go on using a common that commons has dropped.
type commons struct {
	mu   sync.Mutex
	byID map[commonID]*common
}

type commonID struct {
	term owner.Term
	plan *demand.Plan
}

// maxCommons bounds commons, of 150 bytes each. 16 policies need so many in all slots.
const maxCommons = 1 << 16

// get returns the common that keys of term and plan share.
func (b *commons) get(term owner.Term, plan *demand.Plan) *common {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := commonID{term, plan}
	shared := b.byID[id]
	if shared == nil {
		if b.byID == nil || len(b.byID) >= maxCommons {
			b.byID = make(map[commonID]*common)
		}
		shared = &common{term: term, plan: plan}
		b.byID[id] = shared
	}
	return shared
}

// clear drops all commons, so that ended terms can be garbage collected.
func (b *commons) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.byID)
}

// ticks is the time since owned.began. It wraps after two years.
type ticks uint32

const tick = time.Second / 64

// inCell is the state of a key's cell.
type inCell struct {
	buckets     []store.Bucket
	conversions []store.Conversion
	applied     store.Applied
	built       cas.Attempts // versions of the cell whose units the state includes
}

// newKeyState returns the keyState of a key from its state, which was read just now and is complete. latest is the instant of
// the latest decision; until is the field of common.
func (o *owned) newKeyState(term owner.Term, plan *demand.Plan, state *store.State, latest store.Instant, until time.Duration) *keyState {
	k := &keyState{latest: latest, read: ticks(time.Since(o.began) / tick), counts: state.Counts}
	if len(state.Logs) > 0 {
		k.events = state.Logs[0].Events
	}
	if until == 0 && state.Reset == 0 && len(state.Logs) <= 1 && !plan.Cell {
		k.common = o.commons.get(term, plan.Base)
		return k
	}
	k.common = &common{term: term, plan: plan.Base, until: until, reset: state.Reset}
	if len(state.Logs) > 1 {
		k.further = slices.Clone(state.Logs[1:])
	}
	if plan.Cell {
		k.inCell = &inCell{buckets: state.Buckets, conversions: state.Conversions, applied: state.Applied}
		k.inCell.built.Add(state.Cell.Version)
	}
	return k
}

// states are reused by open. Plans judge by whole states, which are far larger than a keyState.
var states = sync.Pool{New: func() any { return new(store.State) }}

// open locks k and returns its state. Until close, the caller may change all of it except Reset.
func (k *keyState) open() *store.State {
	k.mu.Lock()
	s := states.Get().(*store.State)
	s.Counts, s.Reset = k.counts, k.reset
	if len(k.plan.Logs) > 0 {
		s.Logs = append(append(s.Logs[:0], store.Log{Events: k.events}), k.further...)
	}
	if c := k.inCell; c != nil {
		s.Buckets, s.Conversions, s.Applied = c.buckets, c.conversions, c.applied
	}
	return s
}

// close stores s, which open returned, in k, and unlocks it.
func (k *keyState) close(s *store.State) {
	k.counts = s.Counts
	if len(s.Logs) > 0 {
		k.events = s.Logs[0].Events
		copy(k.further, s.Logs[1:])
	}
	if c := k.inCell; c != nil {
		c.buckets, c.conversions, c.applied = s.Buckets, s.Conversions, s.Applied
	}
	clear(s.Logs)
	*s = store.State{Logs: s.Logs[:0]}
	states.Put(s)
	k.mu.Unlock()
}

// Bounds of the states in memory, beside Options.MaxKeys.
const (
	ownedShards = 64      // so many that two cores rarely wait for the same lock
	maxEvents   = 1 << 16 // of 40 bytes, in the logs of each generation of a shard: 320 MiB in all
	// spareEvents is the number of events that are kept beyond a limit: a batch may add so many.
	spareEvents = maxJoined
)

func (o *owned) shard(key store.Key) *ownedShard { return &o.shards[key.Prefix()>>32%ownedShards] }

// lookup returns the state of t under term, nil if the key must be read.
func (o *owned) lookup(t *demand.Target, term owner.Term) *keyState {
	sh := o.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k, ok := sh.small[t.Key]
	if !ok {
		k, ok = sh.young[t.Key]
	}
	if !ok {
		if k, ok = sh.old[t.Key]; ok {
			sh.put(t.Key, k, o.maxKnown())
		}
	}
	if !ok || k.term != term || k.plan != t.Plan.Base && !k.plan.Serves(t.Plan) ||
		len(t.OldKeys) > 0 || k.until != 0 && time.Since(o.began) > k.until {
		return nil
	}
	return k
}

// widened returns t, which is about to be read, under a plan that also reads the units for which the state in memory is
// kept: if calls under both plans alternate, the key is read once.
func (o *owned) widened(t *demand.Target) *demand.Target {
	sh := o.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := cmp.Or(sh.young[t.Key], sh.old[t.Key])
	if k == nil || k.plan == t.Plan.Base {
		return t
	}
	wide := *t
	wide.Plan = t.Plan.Wide(k.plan)
	return &wide
}

func (o *owned) put(key store.Key, k *keyState) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.put(key, k, o.maxKnown())
}

// maxKnown returns the number of keys that each generation of a shard may hold.
func (o *owned) maxKnown() int { return max(1, o.opts.MaxKeys/(2*ownedShards)) }

// put keeps k. It may drop other keys, which are read again when they are needed: unwritten and prepared units are not
// kept in these states alone.
func (sh *ownedShard) put(key store.Key, k *keyState, most int) {
	if sh.young == nil || len(sh.young) >= max(1, most-len(sh.small)/2) {
		sh.age()
	}
	sh.young[key] = k
	delete(sh.old, key)
	sh.grow(k.length())
}

// age begins a new generation: keys that are not used before the next one begins are dropped then.
func (sh *ownedShard) age() { sh.old, sh.young, sh.events = sh.young, make(map[store.Key]*keyState), 0 }

// grow notes that young has so many events more.
func (sh *ownedShard) grow(events int) {
	if sh.events += events; sh.events > maxEvents {
		sh.age()
	}
}

// length returns the number of events that k holds.
func (k *keyState) length() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.events)
	for i := range k.further {
		n += len(k.further[i].Events)
	}
	return n
}

// grew notes that so many events were added to key's state.
func (o *owned) grew(key store.Key, events int) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.grow(events)
}

// remembered returns the number of keys in memory.
func (o *owned) remembered() (n int) {
	for i := range o.shards {
		sh := &o.shards[i]
		sh.mu.Lock()
		n += len(sh.young) + len(sh.old) + len(sh.small)
		sh.mu.Unlock()
	}
	return n
}

// forgetIf drops the state of key if it is k.
func (o *owned) forgetIf(key store.Key, k *keyState) {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, generation := range []map[store.Key]*keyState{sh.young, sh.old} {
		if generation[key] == k {
			delete(generation, key)
		}
	}
}

// forget drops the state of key.
func (o *owned) forget(key store.Key) {
	o.queueSmall(key)
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.young, key)
	delete(sh.old, key)
}

// change drops the state of key and the results of reads in progress, because units were given back, settled or reset.
func (o *owned) change(key store.Key) {
	o.changes.Note(&key)
	o.forget(key)
}

// remembers reports whether a state of t may be kept in memory: the plan's levels make it complete, all units are under one
// key, and the cell does not decide.
func remembers(t *demand.Target) bool {
	return t.Plan.Promising && t.Plan.Regional && len(t.OldKeys) == 0 && !t.Plan.ByCell
}

// new returns the empty state of t under term, nil if units may be counted for t.
func (o *owned) new(t *demand.Target, term owner.Term, now store.Instant) *keyState {
	if o.small.number.Load() > 0 && o.queueSmall(t.Key) { // it was small under another term or plan
		_ = term.Note(t.Key, t.Plan.Life)
		return nil
	}
	if !remembers(t) || !term.IsNew(t.Key, t.Plan.Life) {
		return nil
	}
	var empty store.State
	if n := len(t.Plan.Logs); n > 1 {
		empty.Logs = make([]store.Log, n)
	}
	return o.newKeyState(term, t.Plan, &empty, now, 0)
}

// Keep keeps state, and its memory, as that of t under term, unless it may be incomplete. changes is the number of the key's
// changes before state was read.
func (o *owned) Keep(t *demand.Target, term owner.Term, state *store.State, now store.Instant, changes uint64) {
	if !remembers(t) {
		return
	}
	sh := o.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o.changes.Of(&t.Key) != changes {
		return
	}
	var again time.Duration
	// Other instances may still take back units that they counted before this instance owned the key.
	if t.Plan.Counters && time.Since(term.Began()) < 2*o.opts.StoreTimeout || o.lately.Within(t.Key, 2*o.opts.StoreTimeout) {
		again = time.Since(o.began) + o.opts.StoreTimeout/denied.ProvisionalPart
	}
	sh.put(t.Key, o.newKeyState(term, t.Plan, state, now, again), o.maxKnown())
}

// answer decides c at now if that needs neither a read nor a write: a check of a key in memory, or a take that acknowledged
// units deny.
func (o *owned) answer(c *demand.Charge, now store.Instant) (decided bool) {
	check := c.Op == count.OpCheck
	if c.Op == count.OpRecord || !check && !c.CanAbort() || !c.Term.Owned() || c.Plan.ByCell {
		return false
	}
	changed := o.prepared.Changes.Of(&c.Key)
	k := o.lookup(&c.Target, c.Term)
	if k == nil && check {
		k = o.new(&c.Target, c.Term, now)
	}
	if k == nil {
		return false
	}
	s := k.open()
	defer k.close(s)
	if o.opts.Timing.IsSetBack(k.latest, now) {
		return false
	}
	at := max(now, s.Reset+1)
	if !check {
		return k.writing == 0 && o.age(k) <= denied.MaxDenialAge && c.Plan.Refuse(&c.Decision, s, c.Cost, at, now) &&
			!o.prepared.Doubted(c.Key) && changed == o.prepared.Changes.Of(&c.Key)
	}
	c.Plan.Decide(&c.Decision, s, count.OpCheck, store.EventID{}, at, c.Cost)
	c.Decision.Postpone(at.Sub(now))
	c.Decision.Remembered = true
	return true
}

// age returns the time since k was read, or up to two ticks more. After denied.MaxDenialAge the key is read again before it
// denies a call: other instances, or this one, may have taken some of its units back.
func (o *owned) age(k *keyState) time.Duration {
	return time.Duration(ticks(time.Since(o.began)/tick)-k.read+1) * tick
}

// denies reports whether k has no room under p for one of the requests of batch at now.
func (k *keyState) denies(p *demand.Plan, batch []*demand.Charge, now store.Instant) bool {
	s := k.open()
	defer k.close(s)
	at := max(now, s.Reset+1)
	return slices.ContainsFunc(batch, func(r *demand.Charge) bool {
		return r.Op.MayDeny() && !p.Fits(s, at, r.Cost)
	})
}

// known returns the state of t by which its owner decides batch, which is t's batch in progress. It reads the key again if
// the state is old and would deny. It returns nil if batch must be decided by the store, because
//   - this instance does not own the key,
//   - t has a cell, and its state can't be kept in memory, its units have no room there, or they are held, and so written
//     before they are admitted, or
//   - t has no cell, and memory has no state that is valid now: the store's decision then keeps the state that it reads.
//
// For a dated request, whose ID is good for one write, known itself reads the key in the last case, if the state can be kept.
func (c *counted) known(ctx context.Context, t *demand.Target, batch []*demand.Charge) (*keyState, error) {
	term := batch[0].Term
	if !term.Owned() || t.Plan.Cell && (batch[0].Hold > 0 || !remembers(t) || !c.behind.hasRoom(t.Key)) {
		return nil, nil
	}
	k := c.owned.lookup(t, term)
	now, err := c.opts.Timing.Checked()
	if err != nil {
		return nil, err
	}
	if batch[0].IsDated() {
		now = batch[0].ID.Instant()
	}
	if k == nil {
		if k = c.owned.new(t, term, now); k != nil {
			if t.Plan.Cell {
				c.behind.serial.SawNone(t.Key)
			}
			c.owned.put(t.Key, k)
			return k, nil
		}
	}
	var plan *demand.Plan // for which it is read
	switch {
	case k == nil || c.opts.Timing.IsSetBack(k.latest, now): // k may lack units that it dropped while the clock was ahead
		if !t.Plan.Cell && (!batch[0].IsDated() || !remembers(t)) {
			return nil, nil
		}
		plan = c.owned.widened(t).Plan
		c.owned.cold.Add(int64(len(batch)))
	case c.owned.age(k) <= denied.MaxDenialAge || !k.denies(t.Plan, batch, now):
		return k, nil
	default:
		plan = k.plan
	}
	of := &demand.Target{Plan: plan, Key: t.Key}
	changes := c.owned.changes.Of(&t.Key)
	state, unsure, err := c.readToKeep(ctx, of, len(batch), now)
	switch {
	case err != nil && t.Plan.Cell:
		return nil, err
	case err != nil:
		return k, nil
	}
	c.owned.forget(t.Key)
	c.denials.Forget(t.Key) // memory has later units
	if !unsure {
		c.owned.Keep(of, term, &state, now, changes)
	}
	return c.owned.lookup(t, term), nil
}

// readToKeep returns the state of t for a batch of this size. unsure is true if some of its units may yet be taken back.
func (c *counted) readToKeep(
	ctx context.Context, t *demand.Target, size int, now store.Instant,
) (state store.State, unsure bool, err error) {
	if t.Plan.Cell {
		if err = c.behind.writeKey(ctx, t.Key); err == nil {
			state, err = c.behind.serial.ReadToChange(ctx, t)
		}
		return state, false, err
	}
	q := t.Plan.Query(t.Key, now, size, nil)
	state, discounted, err := c.read(ctx, t, &q)
	return state, discounted.Unsure || c.hasProvisional(t.Plan, &state, now), err
}

// admit decides batch by k, and returns the units to be written.
func (k *keyState) admit(t *demand.Target, batch []*demand.Charge, ids *store.EventIDs, now store.Instant, o *demand.Settings) *units {
	s := k.open()
	defer k.close(s)
	at := max(now, s.Reset+1)
	own := &units{now: at, epoch: s.Reset}
	over := at.Add(-o.Timing.Slack() - time.Second) // nobody notices a clock that is set back by less
	for i := range s.Logs {
		k.plan.Logs[i].Prune(&s.Logs[i], over, spareEvents)
		s.Logs[i].Grow(len(batch), k.plan.Logs[i].Limit)
	}
	s.Counts = slices.DeleteFunc(s.Counts, func(c store.Count) bool { return c.Expires <= over })
	for _, r := range batch {
		id := r.ID
		if !r.IsDated() {
			id = ids.Next(at)
		}
		t.Plan.Decide(&r.Decision, s, r.Op, id, at, r.Cost)
		if at > now {
			r.Decision.Postpone(at.Sub(now))
		}
		if r.Decision.Recorded != count.RecordedYes {
			continue
		}
		r.Decision.Entry = count.Entry{ID: id, At: at, Epoch: own.epoch, Cost: r.Cost}
		event := store.Event{ID: id, At: at, Cost: r.Cost}
		if r.Hold > 0 {
			event.Ends = at.Add(r.Hold)
			s.ReplaceEvent(event)
		}
		own.batch = append(own.batch, r)
		own.events = append(own.events, event)
	}
	k.latest = max(k.latest, now)
	if t.Plan.Cell {
		own.probes = t.Plan.Probes(s)
	}
	if own.small = k.small; own.small {
		own.grown = k.hasGrown(t.Plan, own, s)
	}
	if len(own.batch) > 0 {
		k.writing++
		if t.Plan.Counters {
			own.counts = t.Plan.AppendCounts(nil, own.epoch, at, sumOf(own.batch))
		}
	}
	return own
}

// decideOwned decides batch by k, the state of t.
func (c *counted) decideOwned(ctx context.Context, t *demand.Target, batch []*demand.Charge, k *keyState) {
	now, err := c.opts.Timing.Checked()
	if err != nil {
		failAll(batch, count.RecordedNo, err)
		return
	}
	if batch[0].IsDated() {
		if now = batch[0].ID.Instant(); now <= k.reset {
			batch[0].Err = &demand.DatedError{After: k.reset}
			return
		}
	}
	var mark uint64
	local := t.Plan.OnStoreError == policy.OnStoreErrorLocal // full keys are remembered for outages of the store
	if local {
		mark = c.denials.Since(t.Key)
	}
	held := batch[0].Hold > 0 // units are written before they are admitted, under any guarantee
	switch {
	case held:
		c.owned.queueSmall(t.Key)
	case t.Plan.WriteFrom > 0:
		c.owned.keepSmall(t, k, now)
	}
	own := k.admit(t, batch, c.ids, now, c.opts)
	if len(own.batch) == 0 || own.small && !c.admitSmall(ctx, t, own, k) {
		return
	}
	if !own.small && len(t.Plan.Logs) > 0 {
		c.owned.grew(t.Key, len(t.Plan.Logs)*len(own.events))
	}
	later, unnoted := !own.small && !held && (t.Plan.Cell || t.Plan.Behind && c.behind.hasRoom(t.Key)), count.RecordedNo
	if later {
		c.behind.add(t, own, k) // before Note, which fails if the end of the term has missed these units
		unnoted = count.RecordedUnknown
	}
	if !own.small && (later || !t.Plan.Tally || len(t.Plan.Logs) > 0 || !c.tallies.Spend(t.Key, own.counts)) {
		if err := k.term.Note(t.Key, k.plan.Life); err != nil {
			c.owned.forget(t.Key)
			failAll(own.batch, unnoted, store.Unavailable(err))
			return
		}
		if !later && !c.write(ctx, t, own, k) {
			return
		}
	}
	k.mu.Lock()
	k.writing--
	k.mu.Unlock()
	if local {
		s := k.open()
		defer k.close(s)
		c.denials.KeepFull(t, s, max(now, s.Reset+1), mark)
	}
}

// write writes own, which was decided by k. It returns false, and fails the requests, if the store failed.
func (c *counted) write(ctx context.Context, t *demand.Target, own *units, k *keyState) bool {
	w := store.Write{Key: t.Key, Level: t.Plan.Consistency.Write, Add: own.counts, Tally: t.Plan.Tally, Span: t.Plan.Span}
	if len(t.Plan.Logs) > 0 {
		w.Events, w.Logs = own.events, k.plan.LogWrites
		if hold := own.batch[0].Hold; hold > 0 { // it has a batch of its own
			w.Logs = k.plan.HoldWrites(hold, c.opts)
		}
	}
	var err error
	if w.Tally && len(w.Logs) == 0 {
		err = c.tallies.WriteAhead(ctx, &w, own.ahead())
	} else {
		err = c.store.Write(ctx, &w)
	}
	if err == nil && ctx.Err() != nil { // an answer that comes too late admits nothing
		err = fmt.Errorf("%w: it answered too late: %w", store.ErrUnavailable, ctx.Err())
	}
	if err != nil { // it is not known whether the store has own, so the key must be read again
		c.owned.forget(t.Key)
		c.failUnwritten(t, own, err)
		return false
	}
	return true
}

// steadyFor returns for how long from now a denied request of t would get the same answer; 0 if that is not known.
func (o *owned) steadyFor(t *demand.Target, term owner.Term, now store.Instant) time.Duration {
	k := o.lookup(t, term)
	if k == nil {
		return 0
	}
	changed := o.prepared.Changes.Of(&t.Key)
	if o.prepared.Doubted(t.Key) {
		return 0
	}
	s := k.open()
	defer k.close(s)
	if k.writing > 0 || o.opts.Timing.IsSetBack(k.latest, now) || !t.Plan.Full(s, max(now, s.Reset+1)) {
		return 0
	}
	steady := min(t.Plan.SteadyUntil(s, now).Sub(now), denied.MaxDenialAge-o.age(k))
	if k.until != 0 {
		steady = min(steady, k.until-time.Since(o.began))
	}
	if changed != o.prepared.Changes.Of(&t.Key) {
		return 0
	}
	return max(0, steady)
}
