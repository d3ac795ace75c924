package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// knownFull denies c, where its policy goes by what this instance knows, if what the store said
// last leaves no room.
func (e *Engine) knownFull(c *charge) bool {
	if c.plan.OnStoreError != policy.OnStoreErrorLocal || e.shared == nil || c.op == count.OpRecord {
		return false
	}
	full := &e.shared.counted.denials
	if len(c.plan.parts) == 0 {
		known := full.answerAlone(&c.decision, &c.target, c.cost, e.now())
		c.decision.Remembered = false // the store was asked
		return known
	}
	for _, p := range c.plan.parts {
		of := part{target: c.as(p), request: new(request)}
		if full.answerAlone(&of.decision, &of.target, c.cost, e.now()) {
			c.decision = count.Decision{}
			c.absorb(&of)
			c.decision.Conclude()
			return true
		}
	}
	return false
}

// keepFull remembers state, which was found at now for t after mark, if it leaves no room and the
// policy goes by what this instance knows while the store does not answer. Nobody is denied by it
// as long as the store does. A bucket beside other limits has a key that no news tell of.
func (d *denials) keepFull(t *target, state *store.State, now store.Instant, mark uint64) {
	beside := t.plan.Cell && t.plan.limit != nil
	if t.plan.OnStoreError == policy.OnStoreErrorLocal && !beside && t.plan.Full(state, now) {
		d.keep(t, state, now, now, mark)
	}
}

// answerAlone is answer while the store does not answer: for as long as what is remembered
// leaves no room.
func (d *denials) answerAlone(decision *count.Decision, t *target, cost int64, now store.Instant) bool {
	memory := d.of(t, now)
	return memory != nil && memory.refuse(decision, cost, now)
}
