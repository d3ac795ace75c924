package shadow

import (
	"cmp"
	"slices"
	"time"
)

// Report has the counts of one policy on one instance or on several.
type Report struct {
	Print     uint64    // fingerprint of the shadows: only reports with the same one can be summed
	Since     time.Time // when counting began, on the first of several instances
	Calls     int64     // decided calls, denied or not
	Denied    int64     // denied calls
	Undecided int64     // calls of unknown outcome for shadows, since the store did not answer
	WouldDeny int64     // allowed calls that a shadow would have denied
	Callers   *Callers  // of the calls in WouldDeny; nil: not known
	Confirmed *int64    `json:",omitempty"` // confirmed units; nil: no shadow depends on confirmations
	Limits    []Limit   // the shadows, in the policy's order
}

// Limit has the counts of calls that one shadow would have denied.
type Limit struct {
	Name      string
	WouldDeny int64
	Callers   *Callers
	Hours     []Span // hours of the last week with calls, the oldest first
	Minutes   []Span // minutes of the last hour with calls; their Callers are not known
}

// Span is an hour or a minute.
type Span struct {
	Start     time.Time
	Calls     int64 // decided calls
	WouldDeny int64
	Callers   *Callers
}

// Add adds the counts of another instance for the same shadows. r shares memory with other afterwards.
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

// addSpans returns the sums of the spans of both, the oldest first.
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
