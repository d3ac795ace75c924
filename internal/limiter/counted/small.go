package counted

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A key of a policy with write_from is small while it has used less than that share of the smallest limit. Its units are
// only in its owner's memory, and the set of counted keys does not list it. A small key is written before it gets another
// owner, is read from the store or is dropped from memory, and once it has grown: queueSmall hands all its units to behind,
// under the locks of its shard and its state. So each unit is in one place, and writeKey finds it.

// smallKeys has figures on the small keys, which are in the shards of owned.
type smallKeys struct {
	behind *behind
	number atomic.Int64
	moving atomic.Pointer[func(store.Key) bool] // selects keys that get another owner, and must not become small; nil: none
	ended  atomic.Bool                          // some small keys of terms that have ended may be left
}

// Bounds of small keys.
const (
	maxSmallEvents = 16               // in a log: a key with so many is written, whatever its limits
	maxQueuedKeys  = 1 << 13          // keys in behind: while it has so many, no small keys are queued
	stuckAfter     = 10 * time.Second // Unload gives up after this time without an acknowledged write
)

// maxSmall returns the number of small keys that a shard may hold: half of all keys in memory.
func (o *owned) maxSmall() int { return o.opts.MaxKeys / (2 * ownedShards) }

// keepSmall makes t's key small if no units count in k, its state, and there is room for another small key.
func (o *owned) keepSmall(t *demand.Target, k *keyState, now store.Instant) {
	if !t.Plan.Behind {
		return
	}
	sh := o.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if moving := o.small.moving.Load(); len(sh.small) >= o.maxSmall() || moving != nil && (*moving)(t.Key) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.small || k.writing > 0 || !k.hasExpired(o.expiryHorizon(now)) {
		return
	}
	k.small, k.events, k.counts, k.latest = true, nil, nil, max(k.latest, now)
	for i := range k.further {
		k.further[i].Events = nil
	}
	if sh.small == nil {
		sh.small = make(map[store.Key]*keyState)
	}
	sh.small[t.Key] = k
	o.small.number.Add(1)
	delete(sh.young, t.Key)
	delete(sh.old, t.Key)
}

// expiryHorizon returns an instant before now. Units that have expired by then no longer count on any instance: their clocks
// differ, and may be set back unnoticed.
func (o *owned) expiryHorizon(now store.Instant) store.Instant {
	return now.Add(-o.opts.Timing.Slack() - time.Second)
}

// hasExpired reports whether none of k's units count at an instant. k is locked.
func (k *keyState) hasExpired(at store.Instant) bool {
	for i := range k.plan.Logs {
		events := k.events
		if i > 0 {
			events = k.further[i-1].Events
		}
		if n := len(events); n > 0 && events[n-1].At > at-k.plan.Logs[i].CountsFor {
			return false
		}
	}
	return !slices.ContainsFunc(k.counts, func(c store.Count) bool { return c.Expires > at })
}

// hasGrown reports whether k must be written because of own, which is in k and in its opened state s.
func (k *keyState) hasGrown(p *demand.Plan, own *units, s *store.State) bool {
	for i := range s.Logs {
		if len(s.Logs[i].Events) >= maxSmallEvents {
			return true
		}
	}
	if len(own.batch) == 0 {
		return false
	}
	limits := own.batch[len(own.batch)-1].Decision.Limits()
	return slices.ContainsFunc(limits, func(l count.LimitDecision) bool { return l.Used >= p.SmallBelow() })
}

// admitSmall admits own, which is in k, the state of a key that was small when own was decided. If the key has grown, its
// units are written behind from now on. admitSmall returns false, and fails the requests, if own is not admitted.
func (c *counted) admitSmall(ctx context.Context, t *demand.Target, own *units, k *keyState) bool {
	var err error
	if own.grown {
		room := c.behind.hasRoom(t.Key)
		c.owned.queueSmall(t.Key)
		if err = k.term.Note(t.Key, k.plan.Life); err == nil && !room {
			err = c.behind.writeKey(ctx, t.Key)
		}
	} else if k.term.Verified().IsZero() { // the end of the term may have missed own
		err = owner.ErrTermEnded
	}
	if err != nil {
		c.owned.forget(t.Key)
		failAll(own.batch, count.RecordedUnknown, store.Unavailable(err))
		return false
	}
	return true
}

// queueSmall queues the units of key to be written behind, if it is small, and reports whether it was.
func (o *owned) queueSmall(key store.Key) bool {
	if o.small.number.Load() == 0 {
		return false
	}
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := sh.small[key]
	if k != nil {
		o.queueSmallLocked(sh, key, k)
	}
	return k != nil
}

// queueSmallLocked moves the units of k, the state of a small key of sh, to behind. The shard is locked.
func (o *owned) queueSmallLocked(sh *ownedShard, key store.Key, k *keyState) {
	_ = k.term.Note(key, k.plan.Life) // before the units can be written; they are written even if the term has ended
	o.dropSmall(sh, key)
	k.mu.Lock()
	k.small = false
	all := &units{events: k.events, counts: k.counts}
	for i := range k.further {
		if more := k.further[i].Events; len(more) > len(all.events) {
			all.events = more
		}
	}
	o.small.behind.add(&demand.Target{Plan: k.plan, Key: key}, all, k)
	k.mu.Unlock()
	sh.put(key, k, o.maxKnown())
}

// dropSmall removes key from the small keys of sh, which is locked.
func (o *owned) dropSmall(sh *ownedShard, key store.Key) {
	delete(sh.small, key)
	o.small.number.Add(-1)
}

// dropIfExpired drops key, a small key of sh, if its units had expired by an instant, and reports whether it did. It keeps a
// key that has just become small, for a call that has not counted yet. The shard is locked.
func (o *owned) dropIfExpired(sh *ownedShard, key store.Key, k *keyState, at store.Instant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasExpired(at) || k.latest > at {
		return false
	}
	k.small = false
	o.dropSmall(sh, key)
	return true
}

// queueSomeSmall queues up to most of the small keys of sh that match accepts; all of them if most is negative. It drops
// those whose units had expired at an instant. It returns false if behind has no room for the others.
func (o *owned) queueSomeSmall(sh *ownedShard, most int, at store.Instant, match func(store.Key, *keyState) bool) (all bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, k := range sh.small {
		switch {
		case most == 0:
			return true
		case !match(key, k):
			continue
		case o.dropIfExpired(sh, key, k, at):
		case o.small.behind.keys.Load() >= maxQueuedKeys:
			return false
		default:
			o.queueSmallLocked(sh, key, k)
		}
		most--
	}
	return true
}

// queueSmallWhere is queueSomeSmall for all small keys that match accepts.
func (o *owned) queueSmallWhere(match func(store.Key, *keyState) bool) (all bool) {
	at := o.currentHorizon()
	for i := range o.shards {
		if !o.queueSomeSmall(&o.shards[i], -1, at, match) {
			return false
		}
	}
	return true
}

// currentHorizon returns the expiryHorizon of the present instant, or 0 if the clock is wrong, so that no key is dropped.
func (o *owned) currentHorizon() store.Instant {
	now, err := o.opts.Timing.Checked()
	if err != nil {
		return 0
	}
	return o.expiryHorizon(now)
}

// trimSmall makes room for new small keys in shards that are nearly full: it drops expired keys, and queues others to be
// written. It also queues keys of terms that have ended.
func (o *owned) trimSmall() {
	if o.small.number.Load() == 0 {
		return
	}
	if o.small.ended.Swap(false) && !o.queueSmallWhere(isEnded) {
		o.small.ended.Store(true)
	}
	at, most := o.currentHorizon(), o.maxSmall()*7/8
	for i := range o.shards {
		sh := &o.shards[i]
		if n := o.dropExpired(sh, most, at); n > most {
			o.queueSomeSmall(sh, n-most*7/8, at, func(store.Key, *keyState) bool { return true })
		}
	}
}

// dropExpired drops the expired small keys of sh if it has more than most small keys, and returns how many are left.
func (o *owned) dropExpired(sh *ownedShard, most int, at store.Instant) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.small) > most {
		for key, k := range sh.small {
			o.dropIfExpired(sh, key, k, at)
		}
	}
	return len(sh.small)
}

// queueAllSmall queues all small keys that match accepts, and writes queued keys whenever behind has no room for more, until
// ctx ends. It reports whether it reached all.
func (o *owned) queueAllSmall(ctx context.Context, match func(store.Key, *keyState) bool) (all bool) {
	for !o.queueSmallWhere(match) {
		if o.small.behind.sync(ctx); clock.Pause(ctx, owner.Pause) != nil {
			return false
		}
	}
	return true
}

// isEnded reports whether k's term has ended.
func isEnded(_ store.Key, k *keyState) bool { return k.term.Verified().IsZero() }

// queueSmallOfEndedTerms is queueAllSmall for keys of terms that have ended. It leaves keys that it can't reach to trimSmall.
func (o *owned) queueSmallOfEndedTerms(ctx context.Context) {
	if !o.queueAllSmall(ctx, isEnded) {
		o.small.ended.Store(true)
	}
}

// Unload writes the small keys that are about to move, as moves reports, and until the next call no such key becomes small.
// moves is nil if no keys move. An error means that some small keys are left: ctx has ended, or the store has taken no write
// for stuckAfter.
func (s *Decider) Unload(ctx context.Context, moves func(store.Key) bool) error {
	o, b := &s.counted.owned, s.counted.behind
	if moves == nil {
		o.small.moving.Store(nil)
		return nil
	}
	o.small.moving.Store(&moves)
	match := func(key store.Key, _ *keyState) bool { return moves(key) }
	written, last, reached := b.written.Load(), time.Now(), time.Time{}
	for reached.IsZero() || b.waitsSince(reached) {
		if reached.IsZero() && o.queueSmallWhere(match) {
			reached = time.Now()
		}
		b.sync(ctx)
		if n := b.written.Load(); n != written {
			written, last = n, time.Now()
		}
		if err := clock.Pause(ctx, owner.Pause); err != nil {
			return err
		}
		if time.Since(last) > stuckAfter {
			return fmt.Errorf("%w: it has taken no write for %v", store.ErrUnavailable, stuckAfter)
		}
	}
	return nil
}

// HasSmall reports whether this instance has small keys.
func (s *Decider) HasSmall() bool { return s.counted.owned.small.number.Load() > 0 }
