package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// behind decides under GuaranteeLocal over a store that instances share: at once, by
// what is in this instance's memory. What is counted there is noted, written to the
// shared store every sync interval, and what other instances wrote there is merged into
// the memory: their events by id, and their running totals beside what is counted here.
//
// Every sync of a key writes first and reads then, so whatever an instance counted before
// a sync is known to all that read later. Of the instances that count for a key, consider
// the one whose last admission goes by the latest read: all that others counted before
// their own last reads is known to it. So a window holds, beyond the limit, at most what
// each of the others admitted after its own: within one interval and one sync, one
// request at least, and the request by which it first saw the key, which reads nothing.
type behind struct {
	counted *counted   // of the shared store
	serial  *serial    // of the same: its buckets
	memory  *exclusive // of this instance
	opts    *Options
	started Instant

	shards [behindShards]behindShard
	groups sync.Pool // of *syncGroup
	room   *room
	resets recent[Instant] // made elsewhere, for keys that the memory may hear of later
	stale  recent[Instant] // keys of which something is given back elsewhere until then
	merges atomic.Int64    // stamps what is merged: what was read last stands
	later  lateRefunds
	syncs  syncs
}

// behindShard is the part of the keys that wait for their sync.
type behindShard struct {
	mu      sync.Mutex
	waiting map[Key]*unsynced
	before  int // how many waited when they were taken last
}

// unsynced is what a sync of one key has to do.
type unsynced struct {
	target target // in the shared store
	since  time.Time
	first  Instant // of what was counted
	events []Event
	only   [1]Event // where events are while there are no more
	remove []EventID
	counts []Count
	*unpoured
	read bool // others' counts are to be merged
}

// unpoured is what a sync of a key's buckets has to do; nil: it has none.
type unpoured struct {
	pours
	inDoubt *doubt // of what came before; nil: nothing is
}

// pours are changes of a key's buckets.
type pours struct {
	poured poured
	scoops []entry // that are given back
}

// doubt is what may be in the shared buckets already, by one of the attempts to have it there.
type doubt struct {
	pours
	tried attempts
}

// DefaultSyncInterval is the SyncInterval of Options that give none: a key that is busy
// costs each instance four writes and reads a second.
const DefaultSyncInterval = 250 * time.Millisecond

// behindShards is large enough that two cores rarely meet.
const behindShards = 64

// localCaveat is what GuaranteeLocal does not promise.
const localCaveat = "guarantee local decides in memory: beyond the limit each further instance may admit what it is asked for " +
	"within one sync interval, and up to the whole limit while the store does not answer"

// localPromise says what p, which is decided in memory, does not promise.
func localPromise(p *Policy, serial Level) (caveat string) {
	scope, more := p.Consistency.Scope(), p.Consistency.Caveat()
	if inCells, _ := p.kept(); inCells {
		scope, more = serial.scope(), serial.caveat()
	}
	switch {
	case scope == ScopeDatacenter:
		more = "each data centre counts on its own"
	case more == "":
		return localCaveat
	}
	return localCaveat + "; " + more
}

var errLocalReserve = &FieldError{
	Field:  "reserve_ms",
	Detail: "a policy under guarantee local holds nothing for later: take instead of check, or use another guarantee",
}

func newBehind(s *shared, memory Exclusive) *behind {
	b := &behind{counted: s.counted, serial: s.serial, memory: newExclusive(memory, s.counted.ids, s.opts), opts: s.opts}
	b.memory.poured, b.started = b.notePoured, s.opts.now()
	b.room = newRoom(s.opts)
	return b
}

// decide decides one charge at now by what is in memory, and notes what it counted.
func (b *behind) decide(ctx context.Context, c *charge, now Instant) {
	now, at := b.enter(ctx, c, now)
	if at == seated {
		defer b.room.settle()
	}
	if at == turnedAway || c.err != nil {
		return
	}
	b.catchUp(ctx, c)
	b.inMemory(c, func() { b.memory.decide(ctx, c, now) })
	b.note(c, at == seated)
}

// entered is how somebody came by the room for what waits to be written.
type entered int

const (
	walkedIn   entered = iota // there was room, or none was needed
	seated                    // after a wait: a place is kept, to be settled
	turnedAway                // it is decided: memory denies it, whatever waits, or there is no room
)

// enter waits until there is room for what c may count, and returns when that is, which is now
// if nobody has to wait. c's error is that there is none, or that the clock was set meanwhile.
func (b *behind) enter(ctx context.Context, c *charge, now Instant) (Instant, entered) {
	if b.room.free() || !b.needsRoom(c) {
		return now, walkedIn
	}
	if b.deniedInMemory(ctx, c, now) {
		return now, turnedAway
	}
	if c.err = b.room.wait(ctx, b.opts.StoreTimeout/2); c.err != nil {
		return now, turnedAway
	}
	now, c.err = b.opts.instant()
	return now, seated
}

// needsRoom reports whether c may count for a key of which nothing waits yet.
func (b *behind) needsRoom(c *charge) bool {
	if c.op == OpCheck {
		return false
	}
	waits := false
	b.whatWaits(c.key, func(*unsynced) { waits = true })
	return !waits || b.room.events.Load() >= maxUnsyncedEvents
}

// deniedInMemory decides a take that memory denies, where nothing is counted of denied ones.
func (b *behind) deniedInMemory(ctx context.Context, c *charge, now Instant) bool {
	if c.op != OpTake || c.plan.Count == CountAll || b.isStale(c.key) {
		return false
	}
	b.catchUp(ctx, c)
	c.op = OpCheck
	b.inMemory(c, func() { b.memory.decide(ctx, c, now) })
	c.op = OpTake
	if c.err == nil && !c.decision.WouldAllow {
		return true
	}
	c.decision, c.err = Decision{}, nil
	return false
}

// inMemory does something with c as memory counts it.
func (b *behind) inMemory(c *charge, do func()) {
	shared := c.target
	c.target = target{plan: shared.plan.local, key: shared.key}
	do()
	c.target = shared
	c.decision.Policy = &shared.plan.Policy
}

// catchUp has memory forget what a reset elsewhere forgot. It may know nothing of the key
// yet: what it counts is to be counted under that reset all the same.
func (b *behind) catchUp(ctx context.Context, c *charge) {
	if at, reset := b.resets.get(c.key); reset {
		b.forget(ctx, &c.target, at)
		b.resets.remove(c.key)
	}
}

// forget has memory forget what was counted for t up to at.
func (b *behind) forget(ctx context.Context, t *target, at Instant) {
	w := Write{Key: t.key, Logs: t.plan.logWrites, Counts: true, Tally: true, Reset: at, ResetTTL: t.plan.resetTTL}
	_ = b.memory.store.Write(ctx, &w) // without room for the key there is nothing to forget
}

// reset forgets what was counted for t in the shared store, and here by the same instant:
// all instances count under it then. The error is a StoreError.
func (b *behind) reset(ctx context.Context, s *shared, t *target) error {
	if err := s.reset(ctx, t); err != nil {
		return err
	}
	if t.plan.cell {
		return b.resetBuckets(ctx, t)
	}
	at, _ := b.counted.resets.get(t.key)
	b.forget(ctx, t, at)
	return nil
}

// forgotten returns up to which instant the last reset of t forgot, if t is decided in
// memory: those who hear of it count under the same. 0: they go by the news' own.
func (e *Engine) forgotten(t *target) Instant {
	if !t.plan.behind || t.plan.cell {
		return 0
	}
	at, _ := e.shared.counted.resets.get(t.key)
	return at
}

// note remembers what memory counted for c, to be written, and that its key is to be
// read: unless it was seen for the first time, which would cost as much as deciding there,
// or was denied, which a read could only change if something was given back.
func (b *behind) note(c *charge, seated bool) {
	d := &c.decision
	if c.err != nil {
		return
	}
	counted, stale := d.Recorded == RecordedYes, b.isStale(c.key)
	switch {
	case counted:
	case !d.WouldAllow && !stale:
		return
	case !seated && !b.room.free() && b.needsRoom(&charge{target: c.target, op: OpTake}):
		return // others have to have what they count written first
	}
	sh, waits := b.wait(&c.target)
	defer sh.mu.Unlock()
	waits.read = waits.read || !counted || c.plan.cell || b.mayBeReset(c.plan) || usedBefore(d, c.cost)
	if stale && waits.read {
		b.wasRead(c.key)
	}
	if !counted || c.plan.cell { // what was poured is noted already
		return
	}
	n := &d.entry
	if waits.first == 0 || n.at < waits.first {
		waits.first = n.at
	}
	if len(c.plan.logs) > 0 {
		waits.events = append(waits.events, Event{ID: n.id, At: n.at, Cost: n.cost})
		b.room.comeEvent()
	}
	var counts [MaxLimits]Count
	waits.count(c.plan.appendCounts(counts[:0], n.epoch, n.at, n.cost))
}

// isStale reports whether something was given back of key elsewhere that may not have been
// read yet.
func (b *behind) isStale(key Key) bool {
	_, stale := b.stale.get(key)
	return stale
}

// wasRead notes that key is going to be read, which is enough where what was given back of it
// is surely written.
func (b *behind) wasRead(key Key) {
	if until, stale := b.stale.get(key); stale && b.opts.now() > until {
		b.stale.remove(key)
	}
}

// heardOf has key, of which something is given back elsewhere, read when somebody asks for
// it: once after it was surely written.
func (b *behind) heardOf(key Key) {
	b.stale.put(key, b.opts.now().Add(b.refundWait()+b.opts.SyncInterval+b.opts.StoreTimeout))
}

// usedBefore reports whether something was counted for d's key before the units that d
// counted.
func usedBefore(d *Decision, units int64) bool {
	for i := range d.Limits() {
		if d.Limits()[i].Used > units {
			return true
		}
	}
	return false
}

// mayBeReset reports whether windows of p that count now may have been reset before this
// process started, and longer ago than news of it live: what is counted for a key that was
// never seen here may be counted under a reset that nobody tells of.
func (b *behind) mayBeReset(p *plan) bool {
	return p.counters && p.resetTTL > newsLives && b.opts.now().Sub(b.started) < p.resetTTL
}

// wait returns what waits for t's sync, and its shard, locked.
func (b *behind) wait(t *target) (*behindShard, *unsynced) {
	sh := &b.shards[t.key.Prefix()%behindShards]
	sh.mu.Lock()
	waits := sh.waiting[t.key]
	if waits == nil {
		if sh.waiting == nil {
			sh.waiting = make(map[Key]*unsynced, sh.before)
		}
		waits = &unsynced{since: time.Now()}
		waits.events = waits.only[:0]
		sh.waiting[t.key] = waits
		b.room.come()
	}
	waits.target = *t
	if t.plan.cell && waits.unpoured == nil {
		waits.unpoured = new(unpoured)
	}
	return sh, waits
}

// count adds counts to those of u.
func (u *unsynced) count(counts []Count) {
	s := State{Counts: u.counts}
	for _, c := range counts {
		s.add(c)
	}
	u.counts = s.Counts
}
