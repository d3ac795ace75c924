package shadow

import (
	"cmp"
	"slices"
	"time"
)

// Report has the counts of one policy, by one instance or by several.
type Report struct {
	Print     uint64    // of the shadows: only reports of the same can be added up
	Since     time.Time // when counting began; of several, the earliest
	Calls     int64     // decided since, those that were denied included
	Denied    int64     // of these
	Undecided int64     // of these: the store did not answer, and nobody knows what shadows would have done
	WouldDeny int64     // calls that were allowed, and that some shadow would have denied
	Callers   *Callers  // of these; nil: not known
	Confirmed *int64    `json:",omitempty"` // units, since; nil: no shadow depends on confirmations
	Limits    []Limit   // that are shadows, in the policy's order
}

// Limit counts calls that one shadow would have denied.
type Limit struct {
	Name      string
	WouldDeny int64
	Callers   *Callers
	Hours     []Span // of the last week that calls came in, the oldest first
	Minutes   []Span // of the last hour; their Callers are not known
}

// Span is an hour or a minute.
type Span struct {
	Start     time.Time
	Calls     int64 // that were decided in it
	WouldDeny int64
	Callers   *Callers
}

// Add adds what another instance counted of the same shadows. It keeps parts of other.
func (r *Report) Add(other *Report) {
	if other.Since.Before(r.Since) {
		r.Since = other.Since
	}
	r.Calls, r.Denied, r.Undecided = r.Calls+other.Calls, r.Denied+other.Denied, r.Undecided+other.Undecided
	r.WouldDeny, r.Callers = r.WouldDeny+other.WouldDeny, union(r.Callers, other.Callers)
	if r.Confirmed != nil && other.Confirmed != nil {
		sum := *r.Confirmed + *other.Confirmed
		r.Confirmed = &sum
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		j := slices.IndexFunc(other.Limits, func(o Limit) bool { return o.Name == l.Name })
		if j < 0 {
			continue
		}
		o := &other.Limits[j]
		l.WouldDeny, l.Callers = l.WouldDeny+o.WouldDeny, union(l.Callers, o.Callers)
		l.Hours, l.Minutes = addSpans(l.Hours, o.Hours), addSpans(l.Minutes, o.Minutes)
	}
}

// addSpans returns the spans of both, in their order.
func addSpans(a, b []Span) []Span {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y Span) int { return cmp.Compare(x.Start.UnixNano(), y.Start.UnixNano()) })
	sum := all[:0]
	for _, s := range all {
		if n := len(sum); n > 0 && sum[n-1].Start.Equal(s.Start) {
			last := &sum[n-1]
			last.Calls, last.WouldDeny, last.Callers = last.Calls+s.Calls, last.WouldDeny+s.WouldDeny, union(last.Callers, s.Callers)
			continue
		}
		sum = append(sum, s)
	}
	return sum
}
