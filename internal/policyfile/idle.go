package policyfile

import (
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// The algorithms that count exactly.
const (
	slidingLog  = "sliding-log"
	fixedWindow = "fixed-window"
)

// Idle returns a sentence for each limit of p that certainly never denies, because others admit too little, such as 300
// a day beside 10 an hour.
func Idle(p *policy.Policy) (told []string) {
	if p.Count == policy.CountAll { // then attempts denied by one limit count for the others
		return nil
	}
	limits := make([]policy.Limit, len(p.Limits))
	for i := range limits {
		limits[i] = p.Limits[i].WithDefaults()
	}
	for j := range limits {
		for i := range limits {
			if i == j || limits[i].Shadow || !bounds(&limits[i], &limits[j]) || j < i && !limits[j].Shadow && bounds(&limits[j], &limits[i]) {
				continue
			}
			told = append(told, fmt.Sprintf("policy %s: the limit %s can never deny: %s admits no more than it in any case: "+
				"write a smaller number, or remove it",
				p.Name, limits[j].Name, limits[i].Name))
			break
		}
	}
	return told
}

// bounds reports whether b never denies units that a admits.
func bounds(a, b *policy.Limit) bool {
	renamed := *b
	renamed.Name = a.Name
	alike := a.ID() == renamed.ID() && a.Buckets == b.Buckets && a.Rounding == b.Rounding
	switch {
	case a.IsConcurrent() || b.IsConcurrent(): // their denials depend on releases
		return false
	case len(a.By) > 0 || len(b.By) > 0 || a.Max > 0 || b.Max > 0: // the numbers depend on the identifier or the request
		return false
	case a.GoesByConfirmation() || b.Until != "": // their decisions depend on confirmations
		return false
	case a.Limit == 0 || a.Calendar != "" && !alike:
		return false
	case b.Algorithm == policy.Conversion.Name: // it denies the soonest if nothing is confirmed
		return mostOf(a, b) <= b.Limit
	case alike: // they count alike
		return a.Capacity() <= b.Capacity() && a.Limit <= b.Limit
	case b.InCell():
		return a.Algorithm == b.Algorithm && a.Capacity() <= b.Capacity() && rate(a) <= rate(b)
	}
	return mostOf(a, b) <= b.Limit
}

// mostOf returns the maximum of units that a admits within the span that b counts.
func mostOf(a, b *policy.Limit) int64 {
	if a.InCell() {
		return int64(min(math.Ceil(float64(a.Capacity())+rate(a)*float64(seenBy(b))+1), 1<<62))
	}
	if times := windows(a, b); times <= math.MaxInt64/a.Limit {
		return times * a.Limit
	}
	return math.MaxInt64
}

// windows returns the maximum that a admits within the span that b counts, as a multiple of its limit.
func windows(a, b *policy.Limit) int64 {
	seen := seenBy(b)
	times := int64((seen + a.Window - 1) / a.Window)
	aligned := a.Algorithm == fixedWindow && b.Algorithm == fixedWindow && b.Calendar == "" && seen%a.Window == 0
	if a.Algorithm == slidingLog || aligned {
		return times
	}
	return times + 1 // a span may begin and end within windows
}

// seenBy returns a span with all units that b, which is not a bucket, counts at once.
func seenBy(b *policy.Limit) time.Duration {
	switch {
	case b.Calendar != "":
		return b.Window + time.Hour // clocks may be set back on a day
	case b.Algorithm == slidingLog || b.Algorithm == fixedWindow || b.Algorithm == policy.Conversion.Name:
		return b.Window
	}
	return 2 * b.Window // a part of the window before counts
}

// rate returns the units that are refilled in a nanosecond.
func rate(l *policy.Limit) float64 { return float64(l.Limit) / float64(l.Window) }
