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

// A key of a policy with write_from is small while it has used less than that share of the smallest limit. Its owner has
// its units in memory alone, and the set of counted keys does not list it. A small key that grows, moves, is read from
// the store or falls out of memory is written first: all its units move to behind at once, under the locks of its shard
// and its state. So each unit is in one place, and writeKey finds it.

// smallKeys are the keys that are in memory alone. They are in the shards of owned.
type smallKeys struct {
	behind *behind
	number atomic.Int64
	moving atomic.Pointer[func(store.Key) bool] // keys that get another owner, and do not become small; nil: none
	ended  atomic.Bool                          // some keys of terms that have ended may be left
}

// Bounds of small keys.
const (
	maxSmallEvents = 16               // of one key, from which on it is written, whatever it has used
	outgrowAtOnce  = 1 << 13          // unwritten keys, past which no more small keys are moved to behind
	stuckAfter     = 10 * time.Second // without a write that was acknowledged
)

// mostSmall returns the number of small keys that a shard may hold: half of all keys in memory.
func (o *owned) mostSmall() int { return o.opts.MaxKeys / (2 * ownedShards) }

// keepSmall makes t's key small if nothing is counted for it in k, which is all that is counted, and there is room.
func (o *owned) keepSmall(t *demand.Target, k *keyState, now store.Instant) {
	if !t.Plan.Behind {
		return
	}
	sh := o.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if moving := o.small.moving.Load(); len(sh.small) >= o.mostSmall() || moving != nil && (*moving)(t.Key) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.small || k.writing > 0 || !k.isOver(o.overBy(now)) {
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

// overBy returns the instant by which units must be over so that they count for nobody at now: clocks differ, and may be
// set back unnoticed.
func (o *owned) overBy(now store.Instant) store.Instant {
	return now.Add(-o.opts.Timing.Slack() - time.Second)
}

// isOver reports whether none of k's units count at an instant. k is locked.
func (k *keyState) isOver(at store.Instant) bool {
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

// outgrows reports whether own, which is in k and in its opened state s, makes k's key one that is written.
func (k *keyState) outgrows(p *demand.Plan, own *units, s *store.State) bool {
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

// admitSmall admits own, which is in k, a small key, or was when own was decided. If the key has grown, it is written
// behind from now on. admitSmall returns false, and fails the requests, if they are not admitted.
func (c *counted) admitSmall(ctx context.Context, t *demand.Target, own *units, k *keyState) bool {
	var err error
	if own.grown {
		room := c.behind.hasRoom(t.Key)
		c.owned.outgrow(t.Key)
		if err = k.term.Note(t.Key, k.plan.Life); err == nil && !room {
			err = c.behind.writeKey(ctx, t.Key)
		}
	} else if k.term.Verified().IsZero() { // the end of the term may not have found own
		err = owner.ErrTermEnded
	}
	if err != nil {
		c.owned.forget(t.Key)
		failAll(own.batch, count.RecordedUnknown, store.Unavailable(err))
		return false
	}
	return true
}

// outgrow makes a small key one that is written behind, and reports whether it was small.
func (o *owned) outgrow(key store.Key) bool {
	if o.small.number.Load() == 0 {
		return false
	}
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := sh.small[key]
	if k != nil {
		o.outgrowIn(sh, key, k)
	}
	return k != nil
}

// outgrowIn moves the units of k, the small key of sh, to behind. The shard is locked.
func (o *owned) outgrowIn(sh *ownedShard, key store.Key, k *keyState) {
	_ = k.term.Note(key, k.plan.Life) // before they can be written; those of a term that has ended are written, too
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
	sh.put(key, k, o.mostKnown())
}

// dropSmall removes key from the small keys of sh, which is locked.
func (o *owned) dropSmall(sh *ownedShard, key store.Key) {
	delete(sh.small, key)
	o.small.number.Add(-1)
}

// dropOver drops k, the small key of sh, if its windows are over, and reports whether it did. It keeps a key that has just
// become small, for a call that has not counted yet. The shard is locked.
func (o *owned) dropOver(sh *ownedShard, key store.Key, k *keyState, at store.Instant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isOver(at) || k.latest > at {
		return false
	}
	k.small = false
	o.dropSmall(sh, key)
	return true
}

// outgrowSome makes up to most of the small keys of sh for which which returns true keys that are written behind. It drops
// those whose windows are over at an instant. It returns false if behind has no room for them.
func (o *owned) outgrowSome(sh *ownedShard, most int, at store.Instant, which func(store.Key, *keyState) bool) (all bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, k := range sh.small {
		switch {
		case most == 0:
			return true
		case !which(key, k):
			continue
		case o.dropOver(sh, key, k, at):
		case o.small.behind.keys.Load() >= outgrowAtOnce:
			return false
		default:
			o.outgrowIn(sh, key, k)
		}
		most--
	}
	return true
}

// outgrowWhere is outgrowSome for all keys.
func (o *owned) outgrowWhere(which func(store.Key, *keyState) bool) (all bool) {
	at := o.over()
	for i := range o.shards {
		if !o.outgrowSome(&o.shards[i], -1, at, which) {
			return false
		}
	}
	return true
}

// over returns the instant by which the windows of small keys must be over to be dropped: 0 if the clock can't tell.
func (o *owned) over() store.Instant {
	now, err := o.opts.Timing.Checked()
	if err != nil {
		return 0
	}
	return o.overBy(now)
}

// thinOut writes small keys of shards that are nearly full, so that new ones find room, and those of terms that have
// ended.
func (o *owned) thinOut() {
	if o.small.number.Load() == 0 {
		return
	}
	if o.small.ended.Swap(false) && !o.outgrowWhere(isEnded) {
		o.small.ended.Store(true)
	}
	at, most := o.over(), o.mostSmall()*7/8
	for i := range o.shards {
		sh := &o.shards[i]
		if n := o.dropAllOver(sh, most, at); n > most {
			o.outgrowSome(sh, n-most*7/8, at, func(store.Key, *keyState) bool { return true })
		}
	}
}

// dropAllOver drops the small keys of sh whose windows are over, if there are more than most, and returns how many it then has.
func (o *owned) dropAllOver(sh *ownedShard, most int, at store.Instant) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.small) > most {
		for key, k := range sh.small {
			o.dropOver(sh, key, k, at)
		}
	}
	return len(sh.small)
}

// outgrowAll makes the small keys for which which returns true keys that are written behind, and writes some whenever there is no
// room for more, until ctx ends. It reports whether it reached all.
func (o *owned) outgrowAll(ctx context.Context, which func(store.Key, *keyState) bool) (all bool) {
	for !o.outgrowWhere(which) {
		if o.small.behind.sync(ctx); clock.Pause(ctx, owner.Pause) != nil {
			return false
		}
	}
	return true
}

// isEnded reports whether the term of k's owner has ended.
func isEnded(_ store.Key, k *keyState) bool { return k.term.Verified().IsZero() }

// outgrowEnded is outgrowAll for keys of terms that have ended. Those that it does not reach follow later.
func (o *owned) outgrowEnded(ctx context.Context) {
	if !o.outgrowAll(ctx, isEnded) {
		o.small.ended.Store(true)
	}
}

// Unload writes the keys for which moves returns true and that are in memory alone. Until the next call, none of them is
// in memory alone again; nil: no keys move. An error means that some are left: ctx ended, or the store has taken no write
// for a while.
func (s *Decider) Unload(ctx context.Context, moves func(store.Key) bool) error {
	o, b := &s.counted.owned, s.counted.behind
	if moves == nil {
		o.small.moving.Store(nil)
		return nil
	}
	o.small.moving.Store(&moves)
	which := func(key store.Key, _ *keyState) bool { return moves(key) }
	written, last, reached := b.written.Load(), time.Now(), time.Time{}
	for reached.IsZero() || b.waitsSince(reached) {
		if reached.IsZero() && o.outgrowWhere(which) {
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

// HasSmall reports whether some keys are in memory alone.
func (s *Decider) HasSmall() bool { return s.counted.owned.small.number.Load() > 0 }
