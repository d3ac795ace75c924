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

// any reports whether p changes anything.
func (p *pours) any() bool { return p.poured.units > 0 || len(p.scoops) > 0 }

// any reports whether u says anything.
func (u *unpoured) any() bool { return u != nil && (u.inDoubt != nil || u.pours.any()) }

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

// onto puts p on top of what s's buckets hold under plan, without what s was reset since.
func (p *pours) onto(plan *plan, s *State, now Instant) {
	if p.poured.last > s.Reset {
		p.poured.over(plan, s, now)
	}
	for i := range p.scoops {
		for j := range plan.rules {
			if n := &p.scoops[i]; n.at > s.Reset {
				plan.rules[j].scoop(s, now, n.at, n.cost)
			}
		}
	}
}

// follow puts what was poured into earlier's buckets before what was into u's, which nobody has
// tried to write yet.
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
	u.inDoubt = earlier.inDoubt
}

// dropDrained forgets what waits for so long that a full bucket has drained twice since.
func (u *unsynced) dropDrained(now Instant) {
	horizon := now
	for i := range u.target.plan.rules {
		r := &u.target.plan.rules[i]
		horizon = min(horizon, now.Add(-2*time.Duration(amountOf(r.capacity, r.Window.Milliseconds()).over(r.Limit.Limit))*time.Millisecond))
	}
	u.drop(horizon)
	if u.inDoubt == nil {
		return
	}
	if u.inDoubt.drop(horizon); !u.inDoubt.any() {
		u.inDoubt = nil
	}
}

// drop forgets what was poured before the horizon.
func (p *pours) drop(horizon Instant) {
	if p.poured.last < horizon {
		p.poured = poured{}
	}
	p.scoops = slices.DeleteFunc(p.scoops, func(n entry) bool { return n.at < horizon })
}

// pourBehind pours what was poured here into the shared buckets, by one compare-and-set, and
// takes what they hold then for what they hold here. What is in doubt from earlier comes first,
// by one of its own: only so it is known later whether it is there.
func (b *behind) pourBehind(ctx context.Context, u *unsynced) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	if !u.any() && !u.read {
		return nil
	}
	var there State
	for again := true; again; again = u.any() {
		if u.inDoubt == nil && u.any() {
			u.inDoubt, u.pours = &doubt{pours: u.pours}, pours{}
		}
		var err error
		if there, err = b.pour(ctx, &u.target, u.inDoubt); err != nil {
			return err
		}
		u.inDoubt = nil
	}
	b.syncs.merged.Add(1)
	return b.adopt(ctx, &u.target, &there)
}

// pour has d, which is nil for nothing, in t's shared buckets once, and returns what they hold
// then.
func (b *behind) pour(ctx context.Context, t *target, d *doubt) (there State, err error) {
	if d == nil {
		d = new(doubt)
	}
	changes := d.any()
	err = b.serial.updateOnce(ctx, t, 1, &d.tried, func(s *State, stored bool, now Instant, _ *Write) bool {
		if !stored {
			d.onto(t.plan, s, now)
		}
		there = State{levels: slices.Clone(s.levels), Reset: s.Reset}
		return changes && !stored
	})
	if err != nil {
		return State{}, err
	}
	b.room.written()
	if changes {
		b.syncs.written.Add(1)
	}
	return there, nil
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
		b.whatWaits(t.key, func(u *unsynced) { u.onto(local, s, at) })
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
