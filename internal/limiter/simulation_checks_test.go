package limiter_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

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
		for _, id := range []keys.Identifier{"hot", "other"} {
			units := w.unitsOf(p.Name, id)
			w.checkConfirmed(f, units)
			w.checkSettled(f, units)
			for j := range p.Limits {
				w.checkLimit(f, &p, &p.Limits[j], units)
			}
			for _, u := range units {
				w.checkUsed(f, &p, u, units)
			}
			if w.scenario.total && p.Limits[0].Algorithm == policy.Conversion.Name {
				w.checkConversionLeft(f, &p, id, units)
			} else if w.scenario.total {
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
	case len(r.call.Demands) == 0: // it decides nothing
	case r.passed() && r.answer.Recorded == count.RecordedYes:
		f.admitted++
	case !r.lost && r.err == nil && !r.answer.Allowed:
		f.denied++
	case r.recorded() == count.RecordedUnknown:
		f.unknown++
	}
	if !r.lost && !r.stood && r.ended-r.began > timeout+time.Millisecond {
		f.add(r, "answered after %v", r.ended-r.began)
	}
	if at := limiter.DatedAt(&r.answer.Decision); r.passed() && at != 0 && r.answer.Recorded == count.RecordedYes {
		latest := r.ended + tolerance
		if w.scenario.resets { // it is dated after the reset that it was counted under
			latest += 4 * tolerance
		}
		if at < w.instant(r.began-tolerance) || at > w.instant(latest) {
			f.add(r, "dated beyond the tolerance")
		}
	}
}

// instant returns a moment as a true clock shows it.
func (w *world) instant(at time.Duration) store.Instant {
	return store.InstantOf(w.cluster.start.Add(at))
}

// checkKeys holds that all answers under one idempotency key are the same one.
func (w *world) checkKeys(f *findings) {
	first := make(map[string]*record)
	for _, r := range w.history {
		if r.call.IdempotencyKey == "" || r.lost || r.err != nil || r.answer.Recorded != count.RecordedYes {
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

// checkLimit holds that no more was admitted than the limit allows, by its algorithm's own
// definition. Units that are recorded whatever the limit are left out: they only deny. Refunded
// units made room.
func (w *world) checkLimit(f *findings, p *policy.Policy, l *policy.Limit, units []*unit) {
	if l.Algorithm == policy.Conversion.Name {
		w.checkConversion(f, l, units)
		return
	}
	if l.IsConcurrent() {
		checkUnderWay(f, l, units)
		return
	}
	var admitted []*unit
	for _, u := range units {
		if u.free != never && l.InCell() {
			return
		}
		if u.call.Op == count.OpTake && u.passed() && u.at != 0 && u.free == never {
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

// checkUnderWay holds that at the end of each take that was admitted, no more are under way than the limit allows: that were
// admitted by then, by no clock too long ago, and that nobody had begun to release.
func checkUnderWay(f *findings, l *policy.Limit, units []*unit) {
	admitted := slices.DeleteFunc(slices.Clone(units), func(u *unit) bool {
		return u.call.Op != count.OpTake || !u.passed() || u.at == 0
	})
	for _, u := range admitted {
		n := int64(0)
		for _, other := range admitted {
			if other.ended <= u.ended && u.ended < other.free && u.ended < other.began+l.Window {
				n += other.cost
			}
		}
		if n > l.Limit {
			f.add(u.record, "%d of %d under way when this ended", n, l.Limit)
		}
	}
}

// checkInterval holds that an interval of the window's length that begins with the
// first of admitted holds no more than the limit: by the true clock, of which
// instances that count are off by a constant.
func (w *world) checkInterval(f *findings, p *policy.Policy, l *policy.Limit, admitted []*unit) {
	truly := func(u *unit) store.Instant { return u.at.Add(-w.instances[u.instance].ahead) }
	first := truly(admitted[0])
	n := int64(0)
	for _, u := range admitted {
		if at := truly(u); at >= first && at < first.Add(l.Window) {
			n += u.cost
		}
	}
	if n > l.Limit {
		f.add(admitted[0].record, "%d of %d in the %v from here on", n, l.Limit, l.Window)
	}
}

// checkTail holds that with u the window's count and the previous one's share fit.
func checkTail(f *findings, l *policy.Limit, u *unit, admitted []*unit) {
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

// checkBucket holds that a bucket that was added to at these instants, and at no
// others, never runs over.
func checkBucket(f *findings, l *policy.Limit, admitted []*unit) {
	m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{*l}})
	for _, u := range admitted {
		if !m.Do(count.OpTake, u.at, u.cost).Allowed {
			f.add(u.record, "the bucket runs over")
		}
	}
}

// unitsBetween returns the units that are dated from one instant on, before another.
func unitsBetween(units []*unit, from, until store.Instant) (n int64) {
	for _, u := range units {
		if u.at >= from && u.at < until {
			n += u.cost
		}
	}
	return n
}

func floor(at store.Instant, width time.Duration) store.Instant {
	return at - at%store.Instant(width.Milliseconds())
}

// checkUsed holds that an answer knows of all that was counted before it was asked
// for, but for a denial by what is remembered, which may not know what others counted
// since; and that what it denies could not pass: never wrongly by a bucket, and seldom by
// others.
func (w *world) checkUsed(f *findings, p *policy.Policy, u *unit, units []*unit) {
	if u.lost || u.err != nil || u.answer.Replayed || len(u.call.Demands) > 1 || u.call.IdempotencyKey != "" {
		return
	}
	fits := true
	for i := range p.Limits {
		l := &p.Limits[i]
		sure, possible := w.bounds(l, u, units)
		remembered := p.Guarantee == policy.GuaranteeCounted && !u.answer.Allowed
		if used := u.answer.Limits()[i].Used; used < min(sure, l.Limit) && !remembered {
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
	if p.Limits[0].InCell() && len(p.Limits) == 1 {
		f.add(u.record, "denied though there was room")
	}
}

// bounds returns how many units of others l must hold when u is decided, and how many
// it can.
func (w *world) bounds(l *policy.Limit, u *unit, units []*unit) (sure, possible int64) {
	from, until := w.instant(u.began-tolerance), w.instant(u.ended+tolerance)
	for _, other := range units {
		if other == u {
			continue
		}
		if other.counts && other.ended < u.began && other.free > u.ended && other.at != 0 && other.at > wholeSince(l, until) {
			sure += other.cost
		}
		if other.may && other.began < u.ended && other.gone > u.began && (other.at == 0 || other.at > forgottenBy(l, from)) {
			possible += other.cost
		}
	}
	return sure, possible
}

// wholeSince returns the instant after which all that is dated counts whole at now, by
// any clock.
func wholeSince(l *policy.Limit, now store.Instant) store.Instant {
	switch {
	case l.InCell(): // it begins to drain at once
		return store.Distant
	case inLog(l.Algorithm):
		return now.Add(-l.Window - 2*tolerance)
	case l.Algorithm == "sliding-window":
		return floor(now, l.Window/time.Duration(l.Buckets)).Add(-l.Window+l.Window/time.Duration(l.Buckets)) - 1
	}
	return floor(now, l.Window) - 1
}

// forgottenBy returns the latest instant of which nothing counts at now, by any clock.
func forgottenBy(l *policy.Limit, now store.Instant) store.Instant {
	switch {
	case l.InCell():
		return 0
	case l.Algorithm == "sliding-tail":
		return floor(now, l.Window).Add(-l.Window) - 1
	}
	return min(wholeSince(l, now), now.Add(-l.Window-2*tolerance))
}
