package denied

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// KeepFull remembers state, which was found at now for t after mark, if it leaves no room and the
// policy goes by what this instance knows while the store does not answer. Nobody is denied by it
// as long as the store does. A bucket beside other limits has a key that no news tell of.
func (d *Denials) KeepFull(t *demand.Target, state *store.State, now store.Instant, mark uint64) {
	beside := t.Plan.Cell && t.Plan.Places != nil
	if t.Plan.OnStoreError == policy.OnStoreErrorLocal && !beside && t.Plan.Full(state, now) {
		d.keep(t, state, now, now, mark)
	}
}

// AnswerAlone is answer while the store does not answer: for as long as what is remembered
// leaves no room.
func (d *Denials) AnswerAlone(decision *count.Decision, t *demand.Target, cost int64, now store.Instant) bool {
	memory := d.of(t, now)
	return memory != nil && memory.refuse(decision, cost, now)
}
