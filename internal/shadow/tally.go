package shadow

import (
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// tally has this instance's counts for one policy's shadows.
type tally struct {
	print uint64
	since time.Time
	whole bool // the policy is in mode shadow: it denies nothing, and each of its limits is a shadow

	mu     sync.Mutex
	total  Report // without its limits' spans
	limits []*limit
}

// limit has the counts of one shadow.
type limit struct {
	at      int // its index in the policy
	hours   spans
	minutes spans
}

// How far back spans go.
const (
	hoursKept   = 7 * 24
	minutesKept = 60
)

// newTally returns a tally of p, which has shadows, that begins at now. callers says whether callers are counted.
func newTally(p *policy.Policy, print uint64, now time.Time, callers bool) *tally {
	t := &tally{print: print, since: now, whole: p.Mode == policy.ModeShadow}
	t.total = Report{Print: print, Since: now}
	if callers {
		t.total.Callers = newCallers()
	}
	for i := range p.Limits {
		if !t.whole && !p.Limits[i].Shadow {
			continue
		}
		if p.Limits[i].GoesByConfirmation() && t.total.Confirmed == nil {
			t.total.Confirmed = new(int64)
		}
		of := Limit{Name: p.Limits[i].Name}
		if callers {
			of.Callers = newCallers()
		}
		t.total.Limits = append(t.total.Limits, of)
		t.limits = append(t.limits, &limit{at: i, hours: spans{width: time.Hour, kept: hoursKept, callers: callers},
			minutes: spans{width: time.Minute, kept: minutesKept}})
	}
	return t
}

// observe counts d, of a call for key.
func (t *tally) observe(key store.Key, d *count.Decision, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.Calls++
	switch {
	case d.Degraded:
		t.total.Undecided++
	case !d.Allowed:
		t.total.Denied++
	}
	// If another demand of the call denies it, this one is not recorded, and was not admitted.
	admitted := !d.Degraded && d.Allowed && (t.whole || d.Recorded != count.RecordedNo)
	if admitted && t.denies(d) {
		t.total.WouldDeny++
		t.total.Callers.add(key)
	}
	verdicts := d.Limits()
	for i, l := range t.limits {
		would := admitted && l.at < len(verdicts) && !verdicts[l.at].Allowed && d.Reason == ""
		if would {
			t.total.Limits[i].WouldDeny++
			t.total.Limits[i].Callers.add(key)
		}
		l.hours.add(key, would, now)
		l.minutes.add(key, would, now)
	}
}

// confirm counts confirmed units.
func (t *tally) confirm(units int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total.Confirmed != nil {
		*t.total.Confirmed += units
	}
}

// denies reports whether a shadow would have denied d, which was allowed.
func (t *tally) denies(d *count.Decision) bool {
	if t.whole {
		return !d.WouldAllow
	}
	for i := range d.Limits() {
		if d.Limits()[i].WouldDeny() {
			return true
		}
	}
	return false
}

// report returns a copy of the counts until now.
func (t *tally) report(now time.Time) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.total
	if r.Confirmed != nil {
		confirmed := *r.Confirmed
		r.Confirmed = &confirmed
	}
	r.Callers, r.Limits = r.Callers.clone(), make([]Limit, len(t.limits))
	for i, l := range t.limits {
		r.Limits[i] = t.total.Limits[i]
		r.Limits[i].Callers = r.Limits[i].Callers.clone()
		r.Limits[i].Hours, r.Limits[i].Minutes = l.hours.list(now), l.minutes.list(now)
	}
	return r
}

// spans are the latest spans of one width, in a ring where a new span overwrites the oldest.
type spans struct {
	width   time.Duration
	kept    int  // number of spans
	callers bool // callers are counted
	ring    []Span
}

func (s *spans) add(key store.Key, would bool, now time.Time) {
	if s.ring == nil {
		s.ring = make([]Span, s.kept)
	}
	start := now.Truncate(s.width).UTC()
	place := &s.ring[int(start.Unix()/int64(s.width/time.Second))%s.kept]
	if start.After(place.Start) {
		*place = Span{Start: start}
		if s.callers {
			place.Callers = newCallers()
		}
	}
	place.Calls++ // in the later span, if the clock was set back
	if would {
		place.WouldDeny++
		place.Callers.add(key)
	}
}

// list returns copies of the spans that are not too old, the oldest first.
func (s *spans) list(now time.Time) []Span {
	var all []Span
	for _, span := range s.ring {
		if span.Calls > 0 && now.Sub(span.Start) < time.Duration(s.kept)*s.width {
			span.Callers = span.Callers.clone()
			all = append(all, span)
		}
	}
	return addSpans(all, nil)
}
