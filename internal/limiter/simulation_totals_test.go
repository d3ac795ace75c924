package limiter_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// checkHeld holds that at no time more than the limit was held by takes and
// reservations that were answered and not given back, where nothing leaves by itself.
func (w *world) checkHeld(f *findings, p *policy.Policy, units []*unit) {
	for _, at := range units {
		held := int64(0)
		for _, u := range units {
			if u.counts && u.passed() && u.call.Op != count.OpRecord && u.ended <= at.ended && at.ended < u.free {
				held += u.cost
			}
		}
		for i := range p.Limits {
			if l := &p.Limits[i]; held > l.Capacity() {
				f.add(at.record, "%d of %d held", held, l.Capacity())
			}
		}
	}
}

// checkLeft asks, when all is over, for what is used: everything that was said to be
// counted, and nothing that was said not to be.
func (w *world) checkLeft(f *findings, p *policy.Policy, id keys.Identifier, units []*unit) {
	d, err := w.instances[0].engine.Check(context.Background(), limiter.Demand{Policy: p.Name, Identifier: id})
	if err != nil {
		f.wrong = append(f.wrong, fmt.Sprintf("the last check: %v", err))
		return
	}
	for i := range p.Limits {
		l, used := &p.Limits[i], d.Limits()[i].Used
		least, most := int64(0), int64(0)
		for _, u := range units {
			lo, hi := w.left(p, l, u)
			least, most = least+lo, most+hi
		}
		if used < min(least, l.Limit) || used > most {
			f.wrong = append(f.wrong, fmt.Sprintf("%s/%s, %s: %d used in the end, of at least %d and at most %d",
				p.Name, string(id), l.Algorithm, used, least, most))
		}
	}
}

// left returns the least and the most that l may count of u in the end.
func (w *world) left(p *policy.Policy, l *policy.Limit, u *unit) (least, most int64) {
	if u.gone != never {
		return 0, 0
	}
	cost := u.cost
	counts, may := u.counts, u.may || u.call.Op == count.OpTake && !u.counts && w.mayStay(p, l, u)
	if u.call.Reserve > 0 {
		settled, perhaps := w.settled(u)
		at, told := w.settledAt(u)
		if cost = at; !told {
			cost = max(at, u.cost)
		}
		if perhaps && !endsItself(l) {
			most = u.cost // recorded anew, beside what could not be given back at its end
		}
		counts, may = settled, perhaps || may && w.mayStay(p, l, u)
	}
	if back := w.givenBack(u); len(back) > 0 {
		counts = false
		may = may && (!endsItself(l) || !done(back) || cost > u.cost)
	}
	if u.mayGo {
		counts, may = false, may || counts
	}
	if counts && !l.InCell() {
		least = cost
	}
	if counts || may {
		most += cost
	}
	return least, most
}

// endsItself reports whether what is held under l ends by itself, and what is removed
// is removed for good.
func endsItself(l *policy.Limit) bool { return inLog(l.Algorithm) }

// mayStay reports whether the units of u, which were counted and not admitted, may not have been
// taken back: by a process that died, or from counters and cells, which are not touched in doubt.
func (w *world) mayStay(p *policy.Policy, l *policy.Limit, u *unit) bool {
	switch {
	case w.instances[u.instance].isDead():
		return true
	case inLog(l.Algorithm):
		return false
	case p.Counting == policy.CountingRows && !l.InCell():
		return u.call.Reserve > 0 || len(u.call.Demands) > 1 // the end of a reservation may be in doubt
	}
	return !l.InCell() || len(u.call.Demands) > 1 || u.call.Reserve > 0
}

// settled reports whether u's reservation was recorded, and whether it may have been.
func (w *world) settled(u *unit) (surely, perhaps bool) {
	for _, r := range slices.Concat(w.settlements(u), w.releases(u)) {
		surely = surely || !r.lost && r.err == nil
		perhaps = perhaps || r.recorded() != count.RecordedNo
	}
	return surely, perhaps
}

// checkTogether holds that of two logs that are only ever taken from together either both count
// or none does. Units of a process that died, or that are being removed by a repetition that failed,
// may count in one of them.
func (w *world) checkTogether(f *findings) {
	if len(w.scenario.policies) < 2 || w.scenario.policies[1].Limits[0].Algorithm != "sliding-log" {
		return
	}
	for _, id := range []keys.Identifier{"hot", "other"} {
		var used [2]int64
		for i := range used {
			d, _ := w.instances[0].engine.Check(context.Background(), limiter.Demand{Policy: w.scenario.policies[i].Name, Identifier: id})
			used[i] = d.Used
		}
		doubt := int64(0)
		for _, u := range w.unitsOf("p", id) {
			if !u.counts && (u.may && u.call.IdempotencyKey != "" || w.instances[u.instance].isDead()) {
				doubt += u.cost
			}
		}
		if used[0] > used[1]+doubt || used[1] > used[0]+doubt {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: %d of one and %d of the other of what goes together", string(id), used[0], used[1]))
		}
	}
}
