package limiter

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

// Bounds of a sync.
const (
	// syncKeys is how many keys are written together and read then, and syncGroups how many
	// such groups are under way: enough that the keys of one node fill its requests, and few
	// enough to leave the store to decisions.
	syncKeys   = 32
	syncGroups = 2
	// syncEvents is how many events of a key are written by one request.
	syncEvents = 32
	// lastSync is how long writing may take when the engine ends.
	lastSync = 2 * time.Second
	// noteMargin is longer than any decision in memory takes from its instant until it is
	// noted, but for what it waits beside others that ask the store.
	noteMargin = time.Second
)

// syncs is what became of the syncs of keys.
type syncs struct {
	written, merged, failed atomic.Uint64
	oldest                  atomic.Pointer[time.Time] // of what is being written
}

// Behind is what an engine has decided in memory and written behind, and what it still
// has to.
type Behind struct {
	Waiting int           // keys that wait to be written or read, or are at it
	Lag     time.Duration // since the oldest of them began to wait
	Written uint64        // writes that the store acknowledged, of one key each
	Merged  uint64        // reads of what other instances counted
	Failed  uint64        // writes and reads that failed, and are repeated
}

// Behind returns how far the shared store is behind what was decided in memory.
func (e *Engine) Behind() Behind {
	b := e.behind
	if b == nil {
		return Behind{}
	}
	found := Behind{
		Waiting: int(b.room.keys.Load()), Written: b.syncs.written.Load(), Merged: b.syncs.merged.Load(), Failed: b.syncs.failed.Load(),
	}
	since := time.Now()
	oldest := since
	if at := b.syncs.oldest.Load(); at != nil {
		oldest = *at
	}
	for i := range b.shards {
		oldest = b.shards[i].oldest(oldest)
	}
	found.Lag = since.Sub(oldest)
	return found
}

// oldest returns since when a key has been waiting, if that is before since.
func (s *behindShard) oldest(since time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.waiting {
		if u.since.Before(since) {
			since = u.since
		}
	}
	return since
}

// run syncs what waits every interval, and sooner where room runs out, until ctx ends, and then
// writes what is left.
func (b *behind) run(ctx context.Context) {
	tick := time.NewTicker(b.opts.SyncInterval)
	defer tick.Stop()
	wake, pause := b.room.wake, time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-wake:
		case <-pause.C:
			wake = b.room.wake
			continue
		case <-ctx.Done():
			continue
		}
		b.refundLate(ctx)
		failed := b.syncs.failed.Load()
		b.sync(ctx, true)
		if b.syncs.failed.Load() > failed { // what failed waits again: it is not to be tried without end
			wake = nil
			pause.Reset(min(b.opts.SyncInterval, DefaultSyncInterval))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSync)
	defer cancel()
	for b.writeAll(ctx) && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// writeAll writes what waits, and reports whether something is left.
func (b *behind) writeAll(ctx context.Context) (left bool) {
	b.sync(ctx, false)
	return b.keys() > 0
}

// keys returns how many keys wait for a sync.
func (b *behind) keys() (n int) {
	for i := range b.shards {
		sh := &b.shards[i]
		sh.mu.Lock()
		n += len(sh.waiting)
		sh.mu.Unlock()
	}
	return n
}

// syncing is a key on its way.
type syncing struct {
	*unsynced
	taken Instant // since when
	had   int     // events that waited until then
	added []Count // that were written
	done  bool
}

// syncGroup is some of them, whose next writes go together.
type syncGroup struct {
	keys   []syncing
	writes []Write
	of     []int // which of keys each of writes is of
}

// group returns an empty one.
func (b *behind) group() *syncGroup {
	if g, ok := b.groups.Get().(*syncGroup); ok {
		return g
	}
	return &syncGroup{keys: make([]syncing, 0, syncKeys), writes: make([]Write, 0, syncKeys), of: make([]int, 0, syncKeys)}
}

// empty takes everything out of g, which is not used any more.
func (b *behind) empty(g *syncGroup) {
	clear(g.keys)
	clear(g.writes)
	g.keys, g.writes, g.of = g.keys[:0], g.writes[:0], g.of[:0]
	b.groups.Put(g)
}

// sync writes what waits and, if it is to, reads what others counted, several keys at a time.
// What fails waits again, and what was not begun when ctx ended. It is taken part by part: what
// is counted for a key while that is under way needs room of its own.
func (b *behind) sync(ctx context.Context, read bool) {
	oldest := time.Now()
	for i := range b.shards {
		oldest = b.shards[i].oldest(oldest)
	}
	b.syncs.oldest.Store(&oldest)
	defer b.syncs.oldest.Store(nil)
	shareOut(syncGroups, func(yield func(*syncGroup) bool) {
		g := b.group()
		for s := range b.take() {
			s.read = s.read && read
			if g.keys = append(g.keys, s); len(g.keys) == syncKeys {
				yield(g)
				g = b.group()
			}
		}
		yield(g)
	}, func(g *syncGroup) {
		b.syncGroup(ctx, g)
		b.empty(g)
	})
}

// take returns what waits for a sync, which is under way then.
func (b *behind) take() iter.Seq[syncing] {
	return func(yield func(syncing) bool) {
		for i := range b.shards {
			sh := &b.shards[i]
			sh.mu.Lock()
			waiting := sh.waiting
			sh.waiting, sh.before = nil, len(waiting)
			sh.mu.Unlock()
			taken := b.opts.now()
			for _, u := range waiting {
				yield(syncing{unsynced: u, taken: taken, had: len(u.events)})
			}
		}
	}
}

// syncGroup has what waits for g's keys written, as far as one request for each does it, and the
// rest done then: more is written, poured into buckets, and read of what others did.
func (b *behind) syncGroup(ctx context.Context, g *syncGroup) {
	for i := range g.keys {
		if s := &g.keys[i]; !s.isWritten() && ctx.Err() == nil {
			g.writes, g.of = append(g.writes, s.nextWrite()), append(g.of, i)
		}
	}
	b.writeEach(ctx, g.writes, func(i int, err error) {
		s := &g.keys[g.of[i]]
		s.added = g.writes[i].Add
		b.wrote(s.unsynced, &g.writes[i], err)
		if s.done = err != nil || s.isWritten() && !s.read; s.done {
			b.over(s, err)
		}
	})
	shareOut(syncKeys, func(yield func(*syncing) bool) {
		for i := range g.keys {
			if s := &g.keys[i]; !s.done {
				yield(s)
			}
		}
	}, func(s *syncing) { b.over(s, b.syncOne(ctx, s)) })
}

// writeEach stores writes and calls wrote for each of them with what became of it.
func (b *behind) writeEach(ctx context.Context, writes []Write, wrote func(i int, err error)) {
	if len(writes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	b.counted.tallies.WriteEach(ctx, writes, wrote)
}

// syncOne writes what is left of s, and reads then what others did.
func (b *behind) syncOne(ctx context.Context, s *syncing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.target.plan.cell {
		return b.pourBehind(ctx, s.unsynced)
	}
	err := b.write(ctx, s.unsynced)
	if err == nil && s.read {
		err = b.merge(ctx, s)
	}
	return err
}

// over notes that the sync of s is, which makes room for others. What failed waits again.
func (b *behind) over(s *syncing, err error) {
	if err != nil {
		b.syncs.failed.Add(1)
		b.again(s.unsynced)
	}
	b.room.leave(s.had)
}

// write writes what was counted for u's key, and leaves in u what is not written yet.
func (b *behind) write(ctx context.Context, u *unsynced) error {
	for !u.isWritten() {
		var failed error
		w := u.nextWrite()
		b.writeEach(ctx, []Write{w}, func(_ int, err error) {
			b.wrote(u, &w, err)
			failed = err
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// isWritten reports whether nothing is left to be written of u.
func (u *unsynced) isWritten() bool { return len(u.events)+len(u.remove)+len(u.counts) == 0 }

// nextWrite returns as much of what is to be written of u as one request takes.
func (u *unsynced) nextWrite() Write {
	p := u.target.plan
	return Write{
		Key: u.target.key, Level: p.Consistency.Write, Logs: p.logWrites,
		Events: u.events[:min(len(u.events), syncEvents)], Remove: u.remove, Add: u.counts, Tally: p.tally, Span: p.span,
	}
}

// wrote notes what became of w, the next write of u.
func (b *behind) wrote(u *unsynced, w *Write, err error) {
	if err != nil {
		u.counts = w.again(err).Add
		return
	}
	b.room.written()
	b.syncs.written.Add(1)
	u.events, u.remove, u.counts = u.events[len(w.Events):], nil, nil
}

// again has u, whose sync failed, wait for the next one, beside what came since. What
// nobody counts any more is forgotten.
func (b *behind) again(u *unsynced) {
	p, now := u.target.plan, b.opts.now()
	horizon := now.Add(-p.longestWindow() - b.opts.slack())
	u.events = slices.DeleteFunc(u.events, func(e Event) bool { return e.At < horizon })
	u.remove = slices.DeleteFunc(u.remove, func(id EventID) bool { return id.Instant() < horizon })
	u.counts = slices.DeleteFunc(u.counts, func(c Count) bool { return c.Expires.Add(b.opts.slack()) < now })
	if p.cell {
		u.dropDrained(now)
	}
	if !u.read && u.isWritten() && !u.any() {
		return
	}
	sh, waits := b.wait(&u.target)
	defer sh.mu.Unlock()
	waits.follow(u, now)
	if u.since.Before(waits.since) {
		waits.since = u.since
	}
	if waits.first == 0 || u.first != 0 && u.first < waits.first {
		waits.first = u.first
	}
	waits.events, waits.remove = append(u.events, waits.events...), append(u.remove, waits.remove...)
	b.room.events.Add(int64(len(u.events)))
	waits.count(u.counts)
	waits.read = waits.read || u.read
}

// merge puts what other instances counted for s's key beside what is in memory.
func (b *behind) merge(ctx context.Context, s *syncing) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	t := &s.target
	now := b.opts.now()
	stamp := b.merges.Add(1)
	q := t.plan.query(t.key, now, 1, nil)
	found, _, err := b.counted.read(ctx, t, &q)
	if err != nil {
		return err
	}
	var lost []Count
	q = t.plan.local.query(t.key, now, 1, nil)
	err = b.memory.store.Update(ctx, &q, func(here *State, w *Write) {
		w.Logs, w.Settle, w.Tally, w.Span = t.plan.logWrites, true, true, t.plan.span
		w.Events, w.Remove = b.newsOf(t.plan, &found, here, s.taken)
		w.Put = b.totalsOf(&found, stamp)
		if found.Reset > here.Reset {
			w.Reset, w.ResetTTL, w.Counts = found.Reset, t.plan.resetTTL, true
			lost = lostTo(found.Reset, s.first, s.added)
			w.Add = lost
		}
	})
	b.syncs.merged.Add(1)
	if len(lost) > 0 {
		b.again(&unsynced{target: *t, since: s.since, first: s.first, counts: lost})
	}
	if errors.Is(err, ErrNotStored) { // there is no room for the key: nothing was counted for it either
		return nil
	}
	return err
}

// newsOf returns the events in found that are not in memory yet, and the ids of those
// that are there and were removed elsewhere. What memory counted since it was taken to be
// written is in its own hands.
func (b *behind) newsOf(p *plan, found, memory *State, taken Instant) (events []Event, removed []EventID) {
	settled := taken.Add(-noteMargin - b.opts.StoreTimeout)
	for i := range found.Logs {
		there, here := found.Logs[i].Events, memory.Logs[i].Events
		most := p.logs[i].limit + 1
		from := bottomOf(here, most)
		known := make(map[EventID]bool, len(here))
		for _, e := range here {
			known[e.ID] = true
		}
		for _, e := range there {
			if !known[e.ID] && e.At >= from && e.ID.node() != b.counted.ids.nodeBits {
				events = append(events, e)
			}
		}
		if p.promising {
			removed = append(removed, b.goneFrom(there, here, bottomOf(there, most), settled)...)
		}
	}
	return events, removed
}

// bottomOf returns from which instant on events tell all that there is: they are the
// newest so many.
func bottomOf(events []Event, most int) Instant {
	if len(events) < most {
		return 0
	}
	return events[0].At + 1
}

// goneFrom returns the ids of the events here that were removed there: all that were
// there when they were read are from an instant on, and those counted here from another
// one on may not have been written then.
func (b *behind) goneFrom(there, here []Event, from, settled Instant) (gone []EventID) {
	left := make(map[EventID]bool, len(there))
	for _, e := range there {
		left[e.ID] = true
	}
	for _, e := range here {
		if !left[e.ID] && e.At >= from && e.ID != (EventID{}) && (e.At < settled || e.ID.node() != b.counted.ids.nodeBits) {
			gone = append(gone, e.ID)
		}
	}
	return gone
}

// totalsOf returns the running totals of other instances in found.
func (b *behind) totalsOf(found *State, stamp int64) (totals []Tally) {
	for _, c := range found.Counts {
		if c.Row.node() != b.counted.ids.nodeBits {
			totals = append(totals, Tally{Count: c, Stamp: stamp})
		}
	}
	return totals
}

// lostTo returns of counts, the first of which was counted at an instant, what they have
// to be counted again under: they came after a reset that this instance had not heard of.
func lostTo(reset, first Instant, counts []Count) (lost []Count) {
	for _, c := range counts {
		if c.Epoch < reset && first > reset {
			c.Epoch = reset
			lost = append(lost, c)
		}
	}
	return lost
}
