package limiter

import (
	"context"
	"errors"
	"slices"
	"time"
)

// poured is what was poured into the buckets of a key here, in turn, and is not in the
// shared store yet. The zero value is nothing.
type poured struct {
	units int64
	alone State   // what the buckets would hold of it if nobody else poured
	last  Instant // of it
}

// add pours units into p at now.
func (p *poured) add(plan *plan, now Instant, units int64) {
	for i := range plan.rules {
		plan.rules[i].pour(&p.alone, now, units)
	}
	p.units, p.last = addSaturating(p.units, units), max(p.last, now)
}

// over pours p into s's buckets, of which others tell what they held at some instant, and
// nothing of when it was poured. What they hold at now is exact if p was poured after that
// instant, and else too much.
//
// For what a bucket holds is, of all instants that its last time of being empty may be,
// the most that was poured since, less what drained since. If it was before the instant
// that others tell of, that is theirs and p's together; if after, p's alone.
func (p *poured) over(plan *plan, s *State, now Instant) {
	for i := range plan.rules {
		r := &plan.rules[i]
		alone, _ := r.levelAt(&p.alone, now)
		b := bucket{limit: r.id, at: now, level: alone}
		for _, others := range s.levels {
			if others.limit != r.id {
				continue
			}
			drained := amountOf(r.Limit.Limit, max(0, int64(now-others.at)))
			both := others.level.plus(amountOf(p.units, r.Window.Milliseconds())).minus(drained)
			b.at = max(now, others.at)
			if alone.minus(both) == (amount{}) {
				b.level = both
			}
		}
		s.setLevel(b)
	}
}

// any reports whether u says anything.
func (u *unpoured) any() bool { return u != nil && (u.poured.units > 0 || len(u.scoops) > 0) }

// notePoured notes what memory poured for c, whose key is held still.
func (b *behind) notePoured(c *charge) {
	sh, waits := b.wait(&target{plan: c.plan.mirrors, key: c.key})
	defer sh.mu.Unlock()
	n := &c.decision.entry
	waits.poured.add(c.plan, n.at, n.cost)
}

// noteScooped notes that what n poured for t was given back.
func (b *behind) noteScooped(t *target, n *entry) {
	sh, waits := b.wait(t)
	defer sh.mu.Unlock()
	waits.scoops = append(waits.scoops, *n)
	waits.read = true
}

// onto puts what waits on top of what s's buckets hold, without what s was reset since.
func (u *unsynced) onto(s *State, now Instant) {
	p := u.target.plan
	if u.poured.last > s.Reset {
		u.poured.over(p, s, now)
	}
	for i := range u.scoops {
		for j := range p.rules {
			if n := &u.scoops[i]; n.at > s.Reset {
				p.rules[j].scoop(s, now, n.at, n.cost)
			}
		}
	}
}

// follow puts what was poured into earlier's buckets before what was into u's.
func (u *unsynced) follow(earlier *unsynced, now Instant) {
	if !u.target.plan.cell {
		return
	}
	u.poured.over(u.target.plan, &earlier.poured.alone, now)
	u.poured = poured{
		units: addSaturating(earlier.poured.units, u.poured.units), alone: earlier.poured.alone,
		last: max(earlier.poured.last, u.poured.last),
	}
	u.scoops = append(earlier.scoops, u.scoops...)
}

// dropDrained forgets what waits for so long that a full bucket has drained twice since.
func (u *unsynced) dropDrained(now Instant) {
	horizon := now
	for i := range u.target.plan.rules {
		r := &u.target.plan.rules[i]
		horizon = min(horizon, now.Add(-2*time.Duration(amountOf(r.capacity, r.Window.Milliseconds()).over(r.Limit.Limit))*time.Millisecond))
	}
	if u.poured.last < horizon {
		u.poured = poured{}
	}
	u.scoops = slices.DeleteFunc(u.scoops, func(n entry) bool { return n.at < horizon })
}

// pourBehind pours what was poured here into the shared buckets, by one compare-and-set,
// and takes what they hold then for what they hold here.
func (b *behind) pourBehind(ctx context.Context, u *unsynced) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	var there State
	changes := u.any()
	if !changes && !u.read {
		return nil
	}
	err := b.serial.update(ctx, &u.target, 1, func(s *State, now Instant, _ *Write) bool {
		u.onto(s, now)
		there = State{levels: slices.Clone(s.levels), Reset: s.Reset}
		return changes
	})
	if err != nil {
		return err
	}
	b.syncs.merged.Add(1)
	b.room.written()
	if changes {
		b.syncs.written.Add(1)
	}
	*u.unpoured = unpoured{}
	return b.adopt(ctx, &u.target, &there)
}

// adopt puts what the shared buckets hold, and what was poured here since, in the place of
// what memory's do.
func (b *behind) adopt(ctx context.Context, t *target, there *State) error {
	local := t.plan.local
	now := b.opts.now()
	var failed error
	q := local.query(t.key, now, 1, nil)
	err := b.memory.store.Update(ctx, &q, func(s *State, w *Write) {
		if _, failed = local.open(s); failed != nil {
			return
		}
		at := max(now, s.Reset+1)
		s.levels = slices.Clone(there.levels)
		b.whatWaits(t.key, func(u *unsynced) { u.onto(s, at) })
		cell := local.shut(nil, s, &chain{}, b.counted.ids.next(at), at, b.opts)
		w.Cell = &cell
	})
	if errors.Is(err, ErrNotStored) { // there is no room for the key: nothing was poured for it either
		return nil
	}
	return errors.Join(failed, err)
}

// whatWaits calls do with what waits for key's next sync, if anything does.
func (b *behind) whatWaits(key Key, do func(*unsynced)) {
	sh := &b.shards[key.Prefix()%behindShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if u := sh.waiting[key]; u != nil {
		do(u)
	}
}

// resetBuckets forgets what memory's buckets hold, and what was not written yet.
func (b *behind) resetBuckets(ctx context.Context, t *target) error {
	b.whatWaits(t.key, func(u *unsynced) { *u.unpoured = unpoured{} })
	err := resetStill(ctx, b.memory.store, &target{plan: t.plan.local, key: t.key}, b.opts.now())
	if err != nil {
		return &StoreError{Recorded: RecordedUnknown, Err: err}
	}
	return nil
}
