package limiter

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// toldDenials are denials that owners told this instance, so that who tries again and again is denied where
// it asks, for as long as the owner would tell the same.
//
// As with denials, what is remembered can only be too much: units that were given back since by a
// refund or a reset. These are news, which end the memory, and nothing is remembered longer than
// maxDenialAge. It is a layer that costs no promise: nothing is admitted by it.
type toldDenials struct {
	opts    *Options
	full    bounded.Recent[*toldDenial]
	changes changes
}

// toldDenial is what an owner told of a key without room. It does not change.
type toldDenial struct {
	changes  uint64 // that were noted before the owner was asked
	plan     *plan
	cost     int64
	verdicts []count.Verdict
	at       time.Time // when it was told
	until    time.Time // when it may no longer be so
}

// toldDenied decides c, and reports true, if what its owner told does.
func (e *Engine) toldDenied(c *charge) bool {
	return e.opts.Owners != nil && c.isPlain() && e.denied.answer(c)
}

// answer decides c, and reports true, if what an owner told does.
func (h *toldDenials) answer(c *charge) bool {
	if c.op == count.OpRecord {
		return false
	}
	d, ok := h.full.Get(c.key)
	if !ok || d.plan != c.plan || d.cost != c.cost || d.changes != h.changes.of(&c.key) {
		return false
	}
	now := time.Now()
	if !now.Before(d.until) {
		return false
	}
	passed := now.Sub(d.at)
	for i, limits := 0, c.plan.Begin(&c.decision); i < len(limits); i++ {
		v := d.verdicts[i]
		v.ResetAfter = max(0, v.ResetAfter-passed)
		if v.RetryAfter != count.Never {
			v.RetryAfter = max(0, v.RetryAfter-passed)
		}
		limits[i].Verdict = v
	}
	c.decision.Conclude()
	c.decision.WouldAllow, c.decision.Allowed = false, c.plan.Mode != policy.ModeEnforce
	c.decision.Remembered, c.decision.Recorded = true, count.RecordedNo
	return true
}

// put remembers a for c, which was asked at that time, after so many changes, and is answered now.
func (h *toldDenials) put(c *charge, a *PeerAnswer, asked time.Time, changes uint64) {
	steady := min(a.Steady, maxDenialAge)
	if h.opts.Feed == nil {
		steady = min(steady, h.opts.StoreTimeout)
	}
	if steady <= 0 || a.WouldAllow || c.op == count.OpRecord || c.plan.Count == policy.CountAll || len(c.old) > 0 || h.opts.forgetful {
		return
	}
	h.full.Put(c.key, &toldDenial{
		changes: changes, plan: c.plan, cost: c.cost, verdicts: a.Verdicts, at: time.Now(), until: asked.Add(steady),
	})
}

// steadyFor returns for how long, from now on, a request of t that was denied would be told the same;
// 0 if that is not known.
func (o *owned) steadyFor(t *target, right Right, now store.Instant) time.Duration {
	k := o.of(t, right)
	if k == nil {
		return 0
	}
	changed := o.prepared.changes.of(&t.key)
	if o.prepared.doubted(t.key) {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writing > 0 || o.opts.timing.IsSetBack(k.latest, now) || !k.plan.Full(&k.state, max(now, k.state.Reset+1)) {
		return 0
	}
	steady := min(k.plan.SteadyUntil(&k.state, now).Sub(now), maxDenialAge-time.Since(k.read))
	if !k.until.IsZero() {
		steady = min(steady, time.Until(k.until))
	}
	if changed != o.prepared.changes.of(&t.key) {
		return 0
	}
	return max(0, steady)
}
