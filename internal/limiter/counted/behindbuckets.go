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

// flushKey drops the state of t's key, and writes the units that were added to it in memory, because the cell is about to
// be changed in the store.
func (c *counted) flushKey(ctx context.Context, t *demand.Target, term owner.Term) error {
	c.owned.forget(t.Key)
	if err := c.behind.writeKey(ctx, t.Key); err != nil {
		return err
	}
	if err := term.Note(t.Key, t.Plan.Life); err != nil { // without it, the term might take the key for a new one
		return store.Unavailable(err)
	}
	return nil
}

// pendingDelta has the changes of a key's buckets and conversions in memory that may not be in the stored cell yet.
type pendingDelta struct {
	units   int64         // added to each bucket
	changes []change      // of conversions
	last    store.Instant // of the latest change
	known   *keyState     // the state in memory that has the changes
	tried   cas.Attempts  // conditional writes of the changes, one of which may be stored
	mixed   bool          // another instance, such as the next owner, has changed the cell, too
}

// addToCell notes that own was added to the cell in k, and returns the number of changes that wait because of it. The shard
// is locked.
func (u *unwritten) addToCell(own *units, k *keyState) (more int) {
	units := sumOf(own.batch)
	p := u.pendingIn(k, own.now)
	p.units = store.AddSaturating(p.units, units)
	return p.addChange(u.target.Plan, change{at: own.now, units: units, probes: own.probes})
}

// pendingIn returns u.pending for a change of k at now. The shard is locked.
func (u *unwritten) pendingIn(k *keyState, now store.Instant) *pendingDelta {
	if u.pending == nil {
		u.pending = new(pendingDelta)
	}
	u.pending.known, u.pending.last = k, max(u.pending.last, now)
	return u.pending
}

// writeBuckets makes the changes of u.doubt in the stored cell, by one conditional write. It first looks for an earlier
// attempt in the cell, so that no unit is added twice. It adds all units to buckets as of now, so the stored fill is too
// high by at most the units that have drained since they were admitted.
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
		p.replay(u.target.Plan, s, now)
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

// hasDrained reports whether p's latest change is so old that none of its units count for t: older than two windows of each
// conversion, and than twice the time in which each bucket drains.
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
