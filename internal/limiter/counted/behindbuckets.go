package counted

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// decideInCell decides batch by compare-and-set on t's cell.
func (s *Decider) decideInCell(ctx context.Context, t *demand.Target, batch []*demand.Charge) {
	if t.Plan.Behind {
		if err := s.counted.flushKey(ctx, t, batch[0].Term); err != nil {
			failAll(batch, count.RecordedNo, err)
			return
		}
	}
	s.serial.DecideBatch(ctx, t, batch)
}

// flushKey drops what is known of t's buckets, and writes units that were added in memory to the cell, which is about to change.
func (c *counted) flushKey(ctx context.Context, t *demand.Target, term owner.Term) error {
	c.owned.forget(t.Key)
	if err := c.behind.writeKey(ctx, t.Key); err != nil {
		return err
	}
	if err := term.Note(t.Key, t.Plan.Life); err != nil { // else the key would be new to it again
		return store.Unavailable(err)
	}
	return nil
}

// pendingDelta has the units that were added into a key's buckets and conversions in memory, and are not in the cell yet.
type pendingDelta struct {
	units   int64         // for buckets
	changes []change      // of conversions
	last    store.Instant // time of the last unit
	known   *keyState     // whose buckets hold the units
	tried   cas.Attempts  // conditional writes of the units, one of which may be stored
	mixed   bool          // other instances changed the cell, too: the next owner
}

// addToCell notes that own went into the buckets of k, and returns by how many the waiting changes grew. The shard is
// locked.
func (u *unwritten) addToCell(own *units, k *keyState) (more int) {
	units := sumOf(own.batch)
	p := u.into(k, own.now)
	p.units = store.AddSaturating(p.units, units)
	return p.send(u.target.Plan, change{at: own.now, units: units, probes: own.probes})
}

// into returns the units added into k, with a time of at least now. The shard is locked.
func (u *unwritten) into(k *keyState, now store.Instant) *pendingDelta {
	if u.pending == nil {
		u.pending = new(pendingDelta)
	}
	u.pending.known, u.pending.last = k, max(u.pending.last, now)
	return u.pending
}

// writeBuckets adds u.doubt to u's cell, by one conditional write. It first looks for an earlier attempt, so that
// nothing is added twice; units added since wait for the next write. It dates all units now, which overstates the
// fill by at most what has drained meanwhile.
func (b *behind) writeBuckets(ctx context.Context, u *unwritten) error {
	p := u.doubt
	if p == nil {
		return nil
	}
	p.known.mu.Lock()
	built := slices.Clone(p.known.inCell.built)
	p.known.mu.Unlock()
	err := b.serial.UpdateOnce(ctx, &u.target, &p.tried, func(s *store.State, stored bool, now store.Instant) bool {
		p.mixed = p.mixed || !slices.Contains(built, s.Cell.Version) && !slices.Contains(p.tried, s.Cell.Version)
		if stored || p.last <= s.Reset {
			return false
		}
		for i := range u.target.Plan.Rules {
			if r := &u.target.Plan.Rules[i]; r.Kind != policy.Conversion {
				r.AddToBucket(s, now, p.units)
			}
		}
		p.changeAgain(u.target.Plan, s, now)
		return true
	})
	if err != nil {
		return err
	}
	if p.mixed {
		b.owned.forgetIf(u.target.Key, p.known)
		return nil
	}
	p.known.mu.Lock()
	defer p.known.mu.Unlock()
	for _, version := range p.tried {
		p.known.inCell.built.Add(version)
	}
	return nil
}

// hasDrained reports whether p, added into t's buckets, has waited for so long that a full bucket has drained twice.
func (p *pendingDelta) hasDrained(t *demand.Target, now store.Instant) bool {
	lasts := time.Duration(0)
	for i := range t.Plan.Rules {
		r := &t.Plan.Rules[i]
		if r.Kind == policy.Conversion {
			lasts = max(lasts, r.Window)
			continue
		}
		lasts = max(lasts, time.Duration(store.AmountOf(r.Capacity, r.Window.Milliseconds()).Over(r.Limit.Limit))*time.Millisecond)
	}
	return p.last < now.Add(-2*lasts)
}
