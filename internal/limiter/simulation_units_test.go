package limiter_test

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// unit is what one call asked of one demand, and what is known of it.
type unit struct {
	*record
	of     limiter.Demand
	cost   int64
	at     store.Instant // what it is dated; 0: not known
	counts bool          // it was said to be counted
	may    bool          // it may be counted, as far as its client knows
	free   time.Duration // when it was given back, forgotten, or ended, at the soonest; never: it was not
	gone   time.Duration // by when it was forgotten for sure; never: it was not
	mayGo  bool          // a reset may have forgotten it
}

// unitsOf returns what was asked of one key, in order of time; what came again under an
// idempotency key is one.
func (w *world) unitsOf(policy string, id keys.Identifier) (units []*unit) {
	keys := make(map[string]*unit)
	for _, r := range w.history {
		for i, d := range r.call.Demands {
			if d.Policy != policy || d.Identifier != id || r.call.Op == count.OpCheck && r.call.Reserve == 0 || r.call.Reservation != "" {
				continue
			}
			u := w.unitOf(r, d, i)
			if first := keys[r.call.IdempotencyKey]; first != nil && r.call.IdempotencyKey != "" {
				first.merge(u)
				continue
			}
			keys[r.call.IdempotencyKey] = u
			units = append(units, u)
		}
	}
	return units
}

func (w *world) unitOf(r *record, d limiter.Demand, i int) *unit {
	u := &unit{record: r, of: d, cost: d.Cost, free: never, gone: never}
	decision := &r.answer.Decision
	if len(r.answer.Demands) > 0 {
		decision = &r.answer.Demands[i]
	}
	u.may = r.recorded() != count.RecordedNo
	u.counts = r.recorded() == count.RecordedYes
	if u.counts && r.err == nil {
		u.at = limiter.DatedAt(decision)
	}
	if r.call.Reserve > 0 { // it is held, though not recorded
		u.counts = r.passed() && r.answer.Reservation != ""
		u.may = u.counts || r.lost || r.err != nil && r.recorded() != count.RecordedNo || r.lost
		u.free = r.began + r.call.Reserve
	}
	for _, back := range slices.Concat(w.givenBack(u), w.lessened(u)) {
		u.free = min(u.free, back.began)
	}
	for _, r := range w.history {
		if r.reset == (limiter.Demand{Policy: d.Policy, Identifier: d.Identifier}) {
			u.forget(r)
		}
	}
	return u
}

// forget makes u what a reset leaves of it: nothing of what was answered before it
// began, and perhaps nothing of what came before it was answered. One without an answer
// may come much later.
func (u *unit) forget(reset *record) {
	lands := reset.ended
	switch {
	case !reset.lost && reset.err == nil:
		if u.ended < reset.began {
			u.gone = min(u.gone, reset.ended)
		}
	case reset.recorded() == count.RecordedNo:
		return
	default:
		lands += 2 * longPause
	}
	if u.began < lands {
		u.free, u.mayGo = min(u.free, reset.began), true
	}
}

// settlements returns the calls that recorded u's reservation, answered or not.
func (w *world) settlements(u *unit) (found []*record) {
	for _, r := range w.history {
		if r.call.Reservation != "" && r.call.Reservation == u.answer.Reservation {
			found = append(found, r)
		}
	}
	return found
}

// lessened returns the calls that settled u's reservation at less than it held or released it, answered or not.
func (w *world) lessened(u *unit) []*record {
	less := w.releases(u)
	for _, r := range w.settlements(u) {
		if unitsAsked(r) < u.cost {
			less = append(less, r)
		}
	}
	return less
}

// releases returns the calls that released u's reservation, answered or not.
func (w *world) releases(u *unit) (found []*record) {
	for _, r := range w.history {
		if r.refund != "" && r.refund == u.answer.Reservation {
			found = append(found, r)
		}
	}
	return found
}

// unitsAsked returns what r, a settlement, said that its reservation cost.
func unitsAsked(r *record) int64 { return max(0, r.call.Demands[0].Cost) }

// settledAt returns at how many units u's reservation was settled: as answers say, or if there are none, the most that
// it may have been.
func (w *world) settledAt(u *unit) (units int64, told bool) {
	for _, r := range w.settlements(u) {
		if !r.lost && r.err == nil {
			return r.answer.Settled[0].Cost, true
		}
		units = max(units, unitsAsked(r))
	}
	if done(w.releases(u)) {
		return 0, true
	}
	return units, false
}

// checkSettled holds that all answers to settlements of a reservation say the same, and that none was
// released that was settled at anything.
func (w *world) checkSettled(f *findings, units []*unit) {
	for _, u := range units {
		var first *record
		for _, r := range w.settlements(u) {
			if r.lost || r.err != nil {
				continue
			}
			if first == nil {
				first = r
			}
			was, is := first.answer.Settled[0], r.answer.Settled[0]
			if was != is || is.Over != 0 && is.Over != is.Cost-u.cost && is.Over != is.Cost || is.Cost > 0 && done(w.releases(u)) {
				f.add(r, "settled %+v, and before it %+v\n\t\t%v", is, was, first)
			}
		}
	}
}

// givenBack returns the calls that gave u back, answered or not: refunds and, where it counts until it is confirmed,
// confirmations.
func (w *world) givenBack(u *unit) []*record {
	if w.scenario.policies[0].Limits[0].Until == "" {
		return w.refunds(u)
	}
	return slices.Concat(w.refunds(u), w.confirms(u))
}

// refunds returns the calls that gave u back, answered or not.
func (w *world) refunds(u *unit) (found []*record) {
	receipts := []string{u.answer.Receipt}
	for _, r := range w.settlements(u) {
		receipts = append(receipts, r.answer.Receipt)
	}
	for _, r := range w.history {
		if r.refund != "" && slices.Contains(receipts, r.refund) {
			found = append(found, r)
		}
	}
	return found
}

// merge makes u what is known of it and of a repetition of its call.
func (u *unit) merge(again *unit) {
	u.counts, u.may = u.counts || again.counts, u.may || again.may
	u.at = max(u.at, again.at)
	u.free = min(u.free, again.free)
	if again.counts && !u.passed() {
		record := *again.record
		record.began = u.began
		u.record = &record
	}
}
