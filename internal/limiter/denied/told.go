package denied

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Told are denials that owners told this instance, so that who tries again and again is denied where
// it asks, for as long as the owner would tell the same.
//
// As with denials, what is remembered can only be too much: units that were given back since by a
// refund or a reset. These are news, which end the memory, and nothing is remembered longer than
// MaxDenialAge. It is a layer that costs no promise: nothing is admitted by it.
type Told struct {
	Opts    *demand.Settings
	full    bounded.Recent[*toldDenial]
	Changes Changes
}

// toldDenial is what an owner told of a key without room. It does not change.
type toldDenial struct {
	changes  uint64 // that were noted before the owner was asked
	plan     *demand.Plan
	cost     int64
	verdicts []count.Verdict
	at       time.Time // when it was told
	until    time.Time // when it may no longer be so
}

// Answer decides c, and reports true, if what an owner told does.
func (h *Told) Answer(c *demand.Charge) bool {
	if c.Op == count.OpRecord {
		return false
	}
	d, ok := h.full.Get(c.Key)
	if !ok || d.plan != c.Plan || d.cost != c.Cost || d.changes != h.Changes.Of(&c.Key) {
		return false
	}
	now := time.Now()
	if !now.Before(d.until) {
		return false
	}
	passed := now.Sub(d.at)
	for i, limits := 0, c.Plan.Begin(&c.Decision); i < len(limits); i++ {
		v := d.verdicts[i]
		v.ResetAfter = max(0, v.ResetAfter-passed)
		if v.RetryAfter != count.Never {
			v.RetryAfter = max(0, v.RetryAfter-passed)
		}
		limits[i].Verdict = v
	}
	c.Decision.Conclude()
	c.Decision.WouldAllow, c.Decision.Allowed = false, c.Plan.Mode != policy.ModeEnforce
	c.Decision.Remembered, c.Decision.Recorded = true, count.RecordedNo
	return true
}

// Put remembers a for c, which was asked at that time, after so many changes, and is answered now.
func (h *Told) Put(c *demand.Charge, a *owner.Answer, asked time.Time, changes uint64) {
	steady := min(a.Steady, MaxDenialAge)
	if !h.Opts.News {
		steady = min(steady, h.Opts.StoreTimeout)
	}
	if steady <= 0 || a.WouldAllow || c.Op == count.OpRecord || c.Plan.Count == policy.CountAll || len(c.Old) > 0 {
		return
	}
	h.full.Put(c.Key, &toldDenial{
		changes: changes, plan: c.Plan, cost: c.Cost, verdicts: a.Verdicts, at: time.Now(), until: asked.Add(steady),
	})
}
