package limiter_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// unit is what one call asked of one demand, and what is known of it.
type unit struct {
	*record
	of     limiter.Demand
	cost   int64
	at     limiter.Instant // what it is dated; 0: not known
	counts bool            // it was said to be counted
	may    bool            // it may be counted, as far as its client knows
	free   time.Duration   // when it was given back, or ended, at the soonest; never: it was not
}

// findings are what a schedule has shown.
type findings struct {
	wrong     []string // what was promised and did not hold
	schedules int
	calls     int
	admitted  int
	denied    int
	unlucky   int // denied though there was room, which guarantee counted allows
	unknown   int
}

func (f *findings) add(r *record, format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...)+"\n\t\t"+r.String())
}

// check holds what was seen against what is promised.
func (w *world) check() *findings {
	f := &findings{calls: len(w.history)}
	for _, r := range w.history {
		w.checkAnswer(f, r)
	}
	w.checkKeys(f)
	for i := range w.scenario.policies {
		p := w.scenario.policies[i].WithDefaults()
		for _, id := range []limiter.Identifier{"hot", "other"} {
			units := w.unitsOf(p.Name, id)
			for j := range p.Limits {
				w.checkLimit(f, &p, &p.Limits[j], units)
			}
			for _, u := range units {
				w.checkUsed(f, &p, u, units)
			}
			if w.scenario.total {
				w.checkHeld(f, &p, units)
				w.checkLeft(f, &p, id, units)
			}
		}
	}
	w.checkTogether(f)
	return f
}

// checkAnswer holds that an answer came in time, is one that can be given, and was
// dated while it was decided, by a clock that is tolerated.
func (w *world) checkAnswer(f *findings, r *record) {
	switch {
	case r.passed() && r.answer.Recorded == limiter.RecordedYes:
		f.admitted++
	case !r.lost && r.err == nil && !r.answer.Allowed:
		f.denied++
	case r.recorded() == limiter.RecordedUnknown:
		f.unknown++
	}
	if !r.lost && !r.stood && r.ended-r.began > timeout+time.Millisecond {
		f.add(r, "answered after %v", r.ended-r.began)
	}
	if at := r.answer.DatedAt(); r.passed() && at != 0 && r.answer.Recorded == limiter.RecordedYes {
		if at < w.instant(r.began-tolerance) || at > w.instant(r.ended+tolerance) {
			f.add(r, "dated beyond the tolerance")
		}
	}
}

// instant returns a moment as a true clock shows it.
func (w *world) instant(at time.Duration) limiter.Instant {
	return limiter.InstantOf(w.cluster.start.Add(at))
}

// unitsOf returns what was asked of one key, in order of time; what came again under an
// idempotency key is one.
func (w *world) unitsOf(policy string, id limiter.Identifier) (units []*unit) {
	keys := make(map[string]*unit)
	for _, r := range w.history {
		for i, d := range r.call.Demands {
			if d.Policy != policy || d.Identifier != id || r.call.Op == limiter.OpCheck && r.call.Reserve == 0 || r.call.Reservation != "" {
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
	u := &unit{record: r, of: d, cost: d.Cost, free: never}
	decision := &r.answer.Decision
	if len(r.answer.Demands) > 0 {
		decision = &r.answer.Demands[i]
	}
	u.may = r.recorded() != limiter.RecordedNo
	u.counts = r.recorded() == limiter.RecordedYes
	if u.counts && r.err == nil {
		u.at = decision.DatedAt()
	}
	if r.call.Reserve > 0 { // it is held, though not recorded
		u.counts = r.passed() && r.answer.Reservation != ""
		u.may = u.counts || r.lost || r.err != nil && r.recorded() != limiter.RecordedNo || r.lost
		u.free = r.began + r.call.Reserve
	}
	for _, refund := range w.refunds(u) {
		u.free = min(u.free, refund.began)
	}
	return u
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

// checkKeys holds that all answers under one idempotency key are the same one.
func (w *world) checkKeys(f *findings) {
	first := make(map[string]*record)
	for _, r := range w.history {
		if r.call.IdempotencyKey == "" || r.lost || r.err != nil || r.answer.Recorded != limiter.RecordedYes {
			continue
		}
		before := first[r.call.IdempotencyKey]
		if before == nil {
			first[r.call.IdempotencyKey] = r
			continue
		}
		same := before.answer.Verdict == r.answer.Verdict && before.answer.Receipt == r.answer.Receipt
		if !same || !r.answer.Replayed && !before.answer.Replayed {
			f.add(r, "another answer than\n\t\t%v", before)
		}
	}
}

// checkLimit holds that no more was admitted than the limit allows, by its algorithm's
// own definition. What is recorded whatever the limit is left out: it only denies. What
// was given back made room.
func (w *world) checkLimit(f *findings, p *limiter.Policy, l *limiter.Limit, units []*unit) {
	var admitted []*unit
	for _, u := range units {
		if u.free != never && l.InCell() {
			return
		}
		if u.call.Op == limiter.OpTake && u.passed() && u.at != 0 && u.free == never {
			admitted = append(admitted, u)
		}
	}
	slices.SortStableFunc(admitted, func(a, b *unit) int { return cmp.Compare(a.at, b.at) })
	if l.InCell() {
		checkBucket(f, l, admitted)
		return
	}
	for i, u := range admitted {
		switch l.Algorithm {
		case "sliding-log":
			w.checkInterval(f, p, l, admitted[i:])
		case "sliding-tail":
			checkTail(f, l, u, admitted)
		}
		if l.Algorithm != "sliding-log" {
			width := l.Window / time.Duration(max(1, l.Buckets))
			from := floor(u.at, width)
			if n := unitsBetween(admitted, from, from.Add(l.Window)); n > l.Limit {
				f.add(u.record, "%d of %d in the window that begins here", n, l.Limit)
			}
		}
	}
}

// checkInterval holds that an interval of the window's length that begins with the
// first of admitted holds no more than the limit: by the true clock, of which
// instances that count are off by a constant. Under guarantee serial an instance may
// go by another one's clock: there events count for twice the tolerance longer.
func (w *world) checkInterval(f *findings, p *limiter.Policy, l *limiter.Limit, admitted []*unit) {
	truly := func(u *unit) limiter.Instant { return u.at.Add(-w.instances[u.instance].ahead) }
	window := l.Window
	if p.Guarantee == limiter.GuaranteeSerial {
		truly = func(u *unit) limiter.Instant { return u.at }
		window += 2 * tolerance
	}
	first := truly(admitted[0])
	n := int64(0)
	for _, u := range admitted {
		if at := truly(u); at >= first && at < first.Add(window) {
			n += u.cost
		}
	}
	if n > l.Limit {
		f.add(admitted[0].record, "%d of %d in the %v from here on", n, l.Limit, window)
	}
}

// checkTail holds that with u the window's count and the previous one's share fit.
func checkTail(f *findings, l *limiter.Limit, u *unit, admitted []*unit) {
	start := floor(u.at, l.Window)
	previous, current := unitsBetween(admitted, start.Add(-l.Window), start), unitsBetween(admitted, start, start.Add(l.Window))
	last := u.at
	for _, other := range admitted {
		if other.at < start.Add(l.Window) {
			last = max(last, other.at)
		}
	}
	left := int64(start.Add(l.Window) - last)
	if n := previous*left/l.Window.Milliseconds() + current; n > l.Limit {
		f.add(u.record, "%d of %d, of which %d are in the window before", n, l.Limit, previous)
	}
}

// checkBucket holds that a bucket that was poured into at these instants, and at no
// others, never runs over.
func checkBucket(f *findings, l *limiter.Limit, admitted []*unit) {
	m := limiter.NewMachine(limiter.Policy{Name: "p", Limits: []limiter.Limit{*l}})
	for _, u := range admitted {
		if !m.Do(limiter.OpTake, u.at, u.cost).Allowed {
			f.add(u.record, "the bucket runs over")
		}
	}
}

// unitsBetween returns the units that are dated from one instant on, before another.
func unitsBetween(units []*unit, from, until limiter.Instant) (n int64) {
	for _, u := range units {
		if u.at >= from && u.at < until {
			n += u.cost
		}
	}
	return n
}

func floor(at limiter.Instant, width time.Duration) limiter.Instant {
	return at - at%limiter.Instant(width.Milliseconds())
}

// checkUsed holds that an answer knows of all that was counted before it was asked
// for, but for a denial by what is remembered, which may not know what others recorded
// since; and that what it denies could not pass: never wrongly under guarantee serial,
// and seldom under counted.
func (w *world) checkUsed(f *findings, p *limiter.Policy, u *unit, units []*unit) {
	if u.lost || u.err != nil || u.answer.Replayed || len(u.call.Demands) > 1 || u.call.IdempotencyKey != "" {
		return
	}
	fits := true
	for i := range p.Limits {
		l := &p.Limits[i]
		sure, possible := w.bounds(l, u, units)
		remembered := p.Guarantee == limiter.GuaranteeCounted && !u.answer.Allowed
		if used := u.answer.Limits[i].Used; used < min(sure, l.Limit) && !remembered {
			f.add(u.record, "%d used where %d were counted before", used, sure)
		}
		fits = fits && possible+u.cost <= l.Capacity()
	}
	if u.answer.Allowed || !fits {
		return
	}
	f.unlucky++
	if !w.scenario.plain { // what could not be given back may stay charged
		return
	}
	if p.Guarantee == limiter.GuaranteeSerial || p.Limits[0].InCell() && len(p.Limits) == 1 {
		f.add(u.record, "denied though there was room")
	}
}

// bounds returns how many units of others l must hold when u is decided, and how many
// it can.
func (w *world) bounds(l *limiter.Limit, u *unit, units []*unit) (sure, possible int64) {
	from, until := w.instant(u.began-tolerance), w.instant(u.ended+tolerance)
	for _, other := range units {
		if other == u {
			continue
		}
		if other.counts && other.ended < u.began && other.free > u.ended && other.at != 0 && other.at > wholeSince(l, until) {
			sure += other.cost
		}
		if other.may && other.began < u.ended && (other.at == 0 || other.at > forgottenBy(l, from)) {
			possible += other.cost
		}
	}
	return sure, possible
}

// wholeSince returns the instant after which all that is dated counts whole at now, by
// any clock.
func wholeSince(l *limiter.Limit, now limiter.Instant) limiter.Instant {
	switch {
	case l.InCell(): // it begins to drain at once
		return limiter.Distant
	case l.Algorithm == "sliding-log":
		return now.Add(-l.Window - 2*tolerance)
	case l.Algorithm == "sliding-window":
		return floor(now, l.Window/time.Duration(l.Buckets)).Add(-l.Window+l.Window/time.Duration(l.Buckets)) - 1
	}
	return floor(now, l.Window) - 1
}

// forgottenBy returns the latest instant of which nothing counts at now, by any clock.
func forgottenBy(l *limiter.Limit, now limiter.Instant) limiter.Instant {
	switch {
	case l.InCell():
		return 0
	case l.Algorithm == "sliding-tail":
		return floor(now, l.Window).Add(-l.Window) - 1
	}
	return min(wholeSince(l, now), now.Add(-l.Window-2*tolerance))
}

// checkHeld holds that at no time more than the limit was held by takes and
// reservations that were answered and not given back, where nothing leaves by itself.
func (w *world) checkHeld(f *findings, p *limiter.Policy, units []*unit) {
	for _, at := range units {
		held := int64(0)
		for _, u := range units {
			if u.counts && u.call.Op != limiter.OpRecord && u.ended <= at.ended && at.ended < u.free {
				held += u.cost
			}
		}
		if held > p.Limits[0].Limit && !p.Limits[0].InCell() {
			f.add(at.record, "%d of %d held", held, p.Limits[0].Limit)
		}
	}
}

// checkLeft asks, when all is over, for what is used: everything that was said to be
// counted, and nothing that was said not to be.
func (w *world) checkLeft(f *findings, p *limiter.Policy, id limiter.Identifier, units []*unit) {
	l := &p.Limits[0]
	d, err := w.instances[0].engine.Check(context.Background(), limiter.Demand{Policy: p.Name, Identifier: id})
	if err != nil {
		f.wrong = append(f.wrong, fmt.Sprintf("the last check: %v", err))
		return
	}
	least, most := int64(0), int64(0)
	for _, u := range units {
		lo, hi := w.left(p, u)
		least, most = least+lo, most+hi
	}
	if d.Used < min(least, l.Limit) || d.Used > most {
		f.wrong = append(f.wrong, fmt.Sprintf("%s/%s: %d used in the end, of at least %d and at most %d",
			p.Name, string(id), d.Used, least, most))
	}
}

// left returns the least and the most that may be counted of u in the end.
func (w *world) left(p *limiter.Policy, u *unit) (least, most int64) {
	counts, may := u.counts, u.may || u.call.Op == limiter.OpTake && !u.counts && w.mayStay(p, u)
	if u.call.Reserve > 0 {
		settled, perhaps := w.settled(u)
		if perhaps && !endsItself(p) {
			most = u.cost // recorded anew, beside what could not be given back at its end
		}
		counts, may = settled, perhaps || may && w.mayStay(p, u)
	}
	if len(w.refunds(u)) > 0 {
		counts = false
		may = may && (!endsItself(p) || !w.refunded(u))
	}
	if counts && !p.Limits[0].InCell() {
		least = u.cost
	}
	if counts || may {
		most += u.cost
	}
	return least, most
}

// endsItself reports whether what is held under p ends by itself, and what is removed
// is removed for good.
func endsItself(p *limiter.Policy) bool { return p.Limits[0].Algorithm == "sliding-log" }

// mayStay reports whether what was counted for u and not admitted may not have been
// taken back: by a process that died, or from counters and cells, which are not
// touched in doubt.
func (w *world) mayStay(p *limiter.Policy, u *unit) bool {
	switch {
	case w.instances[u.instance].isDead():
		return p.Guarantee != limiter.GuaranteeSerial || len(u.call.Demands) > 1 || u.call.Reserve > 0
	case p.Limits[0].Algorithm == "sliding-log" && p.Guarantee != limiter.GuaranteeSerial:
		return false
	}
	return p.Guarantee != limiter.GuaranteeSerial && !p.Limits[0].InCell() || len(u.call.Demands) > 1 || u.call.Reserve > 0
}

// settled reports whether u's reservation was recorded, and whether it may have been.
func (w *world) settled(u *unit) (surely, perhaps bool) {
	for _, r := range w.settlements(u) {
		surely = surely || !r.lost && r.err == nil
		perhaps = perhaps || r.recorded() != limiter.RecordedNo
	}
	return surely, perhaps
}

// refunded reports whether u was given back for sure.
func (w *world) refunded(u *unit) bool {
	return slices.ContainsFunc(w.refunds(u), func(r *record) bool { return !r.lost && r.err == nil })
}

// checkTogether holds that of two logs that are only ever taken from together either
// both count or none does, when all holds have ended. What a process was making stay when
// it died, or is being removed by a repetition that failed, may count in one of them.
func (w *world) checkTogether(f *findings) {
	if len(w.scenario.policies) < 2 || w.scenario.policies[1].Limits[0].Algorithm != "sliding-log" {
		return
	}
	for _, id := range []limiter.Identifier{"hot", "other"} {
		var used [2]int64
		for i := range used {
			d, _ := w.instances[0].engine.Check(context.Background(), limiter.Demand{Policy: w.scenario.policies[i].Name, Identifier: id})
			used[i] = d.Used
		}
		doubt := int64(0)
		for _, u := range w.unitsOf("p", id) {
			i := w.instances[u.instance]
			staying := slices.ContainsFunc(i.together, func(at time.Duration) bool { return u.began <= at && at <= u.ended })
			if !u.counts && u.may && (u.call.IdempotencyKey != "" || i.isDead() && staying) {
				doubt += u.cost
			}
		}
		if used[0] > used[1]+doubt || used[1] > used[0]+doubt {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: %d of one and %d of the other of what goes together", string(id), used[0], used[1]))
		}
	}
}
