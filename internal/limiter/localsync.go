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
	// syncWorkers is how many keys are written or read at the same time: enough that those
	// of one node share requests, and few enough to leave the store to decisions.
	syncWorkers = 64
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

// syncing is a key on its way, and since when.
type syncing struct {
	*unsynced
	taken Instant
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
	shareOut(syncWorkers, b.take(), func(s syncing) {
		s.read = s.read && read
		b.syncOne(ctx, s.unsynced, s.taken)
	})
}

// take returns what waits for a sync, which is under way then.
func (b *behind) take() iter.Seq[syncing] {
	return func(yield func(syncing) bool) {
		for i := range b.shards {
			sh := &b.shards[i]
			sh.mu.Lock()
			waiting := sh.waiting
			sh.waiting = nil
			sh.mu.Unlock()
			taken := InstantOf(b.opts.Now())
			for _, u := range waiting {
				yield(syncing{u, taken})
			}
		}
	}
}

// syncOne has u written, and what others did read, and makes room for others. What fails waits
// again.
func (b *behind) syncOne(ctx context.Context, u *unsynced, taken Instant) {
	events, err := len(u.events), ctx.Err()
	switch {
	case err != nil:
	case u.target.plan.cell:
		err = b.pourBehind(ctx, u)
	default:
		err = b.writeAndMerge(ctx, u, taken)
	}
	if err != nil {
		b.syncs.failed.Add(1)
		b.again(u)
	}
	b.room.leave(events)
}

// writeAndMerge writes what was counted for a key until it was taken, and merges then what
// others did.
func (b *behind) writeAndMerge(ctx context.Context, u *unsynced, taken Instant) error {
	wrote := slices.Clone(u.counts)
	err := b.write(ctx, u)
	if err == nil && u.read {
		err = b.merge(ctx, u, wrote, taken)
	}
	return err
}

// write writes what was counted for u's key, and leaves in u what is not written yet.
func (b *behind) write(ctx context.Context, u *unsynced) error {
	p := u.target.plan
	for len(u.events)+len(u.remove)+len(u.counts) > 0 {
		events := u.events[:min(len(u.events), syncEvents)]
		w := &Write{
			Key: u.target.key, Level: p.Consistency.Write, Logs: p.logWrites,
			Events: events, Remove: u.remove, Add: u.counts, Tally: p.tally, Span: p.span,
		}
		if err := b.writeOne(ctx, w); err != nil {
			u.counts = w.again(err).Add
			return err
		}
		u.events, u.remove, u.counts = u.events[len(events):], nil, nil
		b.syncs.written.Add(1)
	}
	return nil
}

func (b *behind) writeOne(ctx context.Context, w *Write) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	err := b.counted.store.Write(ctx, w)
	if err == nil {
		b.room.written()
	}
	return err
}

// again has u, whose sync failed, wait for the next one, beside what came since. What
// nobody counts any more is forgotten.
func (b *behind) again(u *unsynced) {
	p, now := u.target.plan, InstantOf(b.opts.Now())
	horizon := now.Add(-p.longestWindow() - b.opts.slack())
	u.events = slices.DeleteFunc(u.events, func(e Event) bool { return e.At < horizon })
	u.remove = slices.DeleteFunc(u.remove, func(id EventID) bool { return id.Instant() < horizon })
	u.counts = slices.DeleteFunc(u.counts, func(c Count) bool { return c.Expires.Add(b.opts.slack()) < now })
	if p.cell {
		u.dropDrained(now)
	}
	if !u.read && len(u.events)+len(u.remove)+len(u.counts)+len(u.scoops) == 0 && u.poured.units == 0 {
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

// merge puts what other instances counted for u's key beside what is in memory, where
// wrote is what was just written of that.
func (b *behind) merge(ctx context.Context, u *unsynced, wrote []Count, taken Instant) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	t := &u.target
	now := InstantOf(b.opts.Now())
	stamp := b.merges.Add(1)
	q := t.plan.query(t.key, now, 1, nil)
	found, _, err := b.counted.read(ctx, t, &q)
	if err != nil {
		return err
	}
	var lost []Count
	q = t.plan.local.query(t.key, now, 1, nil)
	err = b.memory.store.Update(ctx, &q, func(s *State, w *Write) {
		w.Logs, w.Settle, w.Tally, w.Span = t.plan.logWrites, true, true, t.plan.span
		w.Events, w.Remove = b.newsOf(t.plan, &found, s, taken)
		w.Put = b.totalsOf(&found, stamp)
		if found.Reset > s.Reset {
			w.Reset, w.ResetTTL, w.Counts = found.Reset, t.plan.resetTTL, true
			lost = lostTo(found.Reset, u.first, wrote)
			w.Add = lost
		}
	})
	b.syncs.merged.Add(1)
	if len(lost) > 0 {
		b.again(&unsynced{target: *t, since: u.since, first: u.first, counts: lost})
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
