package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// algorithm is how one of a policy's algorithms counts. Its functions are pure: the same
// rule, state and arguments give the same answer.
type algorithm struct {
	*policy.Algorithm

	// used returns the units that count against the rule at now.
	used func(r *Rule, s *store.State, now store.Instant) int64
	// wait returns how long after now a cost that does not fit will; 0 when it
	// fits. cost is at most the rule's limit.
	wait func(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration
	// steady returns until when, from now on, what is used stays the same if nothing is
	// counted; nil: it may change at any time.
	steady func(r *Rule, s *store.State, now store.Instant) store.Instant
}

// countings are all algorithms. A new one is a file of its own and a row here.
var countings = []*algorithm{slidingLog, fixedWindow, slidingWindow, slidingTail, leakyBucket, TokenBucket}

// countingOf returns how the algorithm called name, of a limit without problems, counts.
func countingOf(name string) *algorithm {
	i := slices.IndexFunc(countings, func(a *algorithm) bool { return a.Name == name })
	return countings[i]
}

// Rule is a limit made ready to decide.
type Rule struct {
	policy.Limit
	ID        policy.LimitID
	Kind      *policy.Algorithm // whose limit it is
	algorithm *algorithm        // how that counts
	slack     time.Duration     // how much longer a log's event counts, for clocks that differ
	countsFor store.Instant     // how long that is altogether, in milliseconds
	log       int               // index into State.Logs; memory of events only
	Capacity  int64             // units it can hold at once: the limit, or a token bucket's burst
	almanac   *almanac          // of windows that go by a calendar; nil: all are of one length
	Width     time.Duration     // of one counter, by name if it goes by a calendar; memory of counters only
	lasts     time.Duration     // how long a counter matters from its start on; likewise
}

// WindowAt returns the window of r's counters that holds at: from start on, before end.
func (r *Rule) WindowAt(at store.Instant) (start, end store.Instant) {
	if r.almanac != nil {
		return r.almanac.window(at)
	}
	start = at.Floor(r.Width)
	return start, start.Add(r.Width)
}

// judge fills in v: whether cost fits into r at now beside what is used, and where that
// leaves the caller. A cost of 0 asks only for the latter. Nobody waits for a shadow.
func (r *Rule) judge(v *Verdict, s *store.State, now store.Instant, cost, used int64) {
	v.Allowed, v.Used, v.Remaining = r.fits(used, cost), used, max(0, r.Capacity-used)
	v.ResetAfter, v.RetryAfter = 0, 0
	if used > 0 && r.Capacity > 0 {
		v.ResetAfter = r.algorithm.wait(r, s, now, r.Capacity)
	}
	switch {
	case v.Allowed, r.Shadow:
	case cost > r.Capacity:
		v.RetryAfter = Never
	default:
		v.RetryAfter = r.algorithm.wait(r, s, now, cost)
	}
}

// Unasked returns the verdict to allow without having asked anyone.
func (r *Rule) Unasked() Verdict { return Verdict{Allowed: true, Remaining: r.Capacity} }

// fits reports whether r has room for cost beside what is used.
func (r *Rule) fits(used, cost int64) bool {
	return cost == 0 || store.AddSaturating(used, cost) <= r.Capacity
}
