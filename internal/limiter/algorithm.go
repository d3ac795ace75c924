package limiter

import (
	"math"
	"time"
)

// algorithm is one way of counting: a row of the table below. Its functions are
// pure: the same rule, state and arguments give the same answer.
type algorithm struct {
	Name   string
	memory memoryKind

	// used returns the units that count against the rule at now.
	used func(r *rule, s *State, now Instant) int64
	// wait returns how long after now a cost that does not fit will; 0 when it
	// fits. cost is at most the rule's limit.
	wait func(r *rule, s *State, now Instant, cost int64) time.Duration
	// steady returns until when, from now on, what is used stays the same if nothing is
	// counted; nil: it may change at any time.
	steady func(r *rule, s *State, now Instant) Instant
	// width returns how long one counter counts, and lasts how long it matters from
	// its start on. Memory of counters only.
	width, lasts func(l *Limit) time.Duration
	// check adds what is wrong with a limit for this algorithm. It may be nil.
	check func(l Limit, path string, found *problems)
}

// algorithms is the table of all algorithms, in the order in which they are
// listed to users. A new one is a file of its own and a row here.
var algorithms = []*algorithm{slidingLog, fixedWindow, slidingWindow, slidingTail, leakyBucket, tokenBucket}

// memoryKind is the kind of memory that an algorithm counts in.
type memoryKind int

const (
	memoryEvents   memoryKind = iota // every event, with instant and cost
	memoryCounters                   // a sum per window
	memoryCells                      // a level and its instant, changed by compare-and-set
)

// Algorithms returns the names of the algorithms there are.
func Algorithms() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.Name
	}
	return names
}

func algorithmByName(name string) (*algorithm, bool) {
	for _, a := range algorithms {
		if a.Name == name {
			return a, true
		}
	}
	return nil, false
}

// rule is a limit made ready to decide.
type rule struct {
	Limit
	id        LimitID
	algorithm *algorithm
	slack     time.Duration // how much longer a log's event counts, for clocks that differ
	counts    Instant       // how long that is altogether, in milliseconds
	log       int           // index into State.Logs; memory of events only
	capacity  int64         // units it can hold at once: the limit, or a token bucket's burst
	almanac   *almanac      // of windows that go by a calendar; nil: all are of one length
	width     time.Duration // of one counter, by name if it goes by a calendar; memory of counters only
	lasts     time.Duration // how long a counter matters from its start on; likewise
}

// windowAt returns the window of r's counters that holds at: from start on, before end.
func (r *rule) windowAt(at Instant) (start, end Instant) {
	if r.almanac != nil {
		return r.almanac.window(at)
	}
	start = at.floor(r.width)
	return start, start.Add(r.width)
}

// judge fills in v: whether cost fits into r at now beside what is used, and where that
// leaves the caller. A cost of 0 asks only for the latter.
func (r *rule) judge(v *Verdict, s *State, now Instant, cost, used int64) {
	v.Allowed, v.Used, v.Remaining = r.fits(used, cost), used, max(0, r.capacity-used)
	v.ResetAfter, v.RetryAfter = 0, 0
	if used > 0 && r.capacity > 0 {
		v.ResetAfter = r.algorithm.wait(r, s, now, r.capacity)
	}
	switch {
	case v.Allowed:
	case cost > r.capacity:
		v.RetryAfter = Never
	default:
		v.RetryAfter = r.algorithm.wait(r, s, now, cost)
	}
}

// fits reports whether r has room for cost beside what is used.
func (r *rule) fits(used, cost int64) bool {
	return cost == 0 || addSaturating(used, cost) <= r.capacity
}

// addSaturating returns a + b, or the nearest int64 where that does not fit.
func addSaturating(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
