package policy

import (
	"slices"
	"time"
)

// Concurrent counts units until they are released, or until their hold ends, which is the limit's Window.
var Concurrent = &Algorithm{
	Name:   "concurrent",
	Memory: MemoryEvents,
	check: func(l Limit, path string, found *problems) {
		if l.Limit > MaxLogLimit {
			found.add(path+".limit", tooManyRows, l.Limit, MaxLogLimit)
		}
	},
}

const tooManyRows = "%d is too large for a concurrent limit, which keeps a row for each unit: use at most %d"

// IsConcurrent reports whether l bounds the number of units that are in use at the same time.
func (l Limit) IsConcurrent() bool { return l.Algorithm == Concurrent.Name }

// IsConcurrent reports whether the limits of p bound the number of units that are in use at the same time. Either all of
// them do, or none.
func (p *Policy) IsConcurrent() bool { return slices.ContainsFunc(p.Limits, Limit.IsConcurrent) }

func (l Limit) checkHold(path string, found *problems) {
	switch {
	case l.Calendar != "":
		found.add(path+".hold", "%q is not a duration: use 1s to 31d, such as 30s", l.Calendar)
	case l.Window < MinWindow || l.Window > MaxWindow:
		found.add(path+".hold", "%s is out of range: use 1s to 31d, somewhat longer than the longest request", FormatWindow(l.Window))
	case l.Window%time.Millisecond != 0:
		found.add(path+".hold", "%v is not whole milliseconds", l.Window)
	}
	if l.Timezone != "" {
		found.add(path+".timezone", "a hold begins with its units, in every time zone: remove it")
	}
	if l.Until != "" {
		found.add(path+".until", "units of a %s count until they are released: remove it", Concurrent.Name)
	}
}

// checkConcurrent refuses limits and a count mode that can't be combined with a concurrent limit.
func (p Policy) checkConcurrent(found *problems) {
	i := slices.IndexFunc(p.Limits, Limit.IsConcurrent)
	if i < 0 {
		return
	}
	if j := slices.IndexFunc(p.Limits, func(l Limit) bool { return !l.IsConcurrent() }); j >= 0 {
		found.add(pathOf(i)+".algorithm", "a release of a %s would release units that limits[%d] still counts: "+
			"give it a policy of its own, and ask for both in one call", Concurrent.Name, j)
	}
	if p.Count == CountAll {
		found.add("count", "%q has no meaning for limits[%d], a %s: a denied request is not under way, and nobody releases it: use %q",
			CountAll, i, Concurrent.Name, CountAdmitted)
	}
}
