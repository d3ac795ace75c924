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

	// probe returns how long after now one unit is let pass that does not fit; nil: none ever is.
	probe func(r *Rule, s *store.State, now store.Instant) time.Duration

	// pour adds units at now to what a cell has of the rule, scoop gives back at now those of an
	// instant, and redate dates as of now what is dated later. Memory of cells only.
	pour   func(r *Rule, s *store.State, now store.Instant, units int64)
	scoop  func(r *Rule, s *store.State, now, at store.Instant, units int64)
	redate func(r *Rule, s *store.State, now store.Instant)
}

// countings are all algorithms. A new one is a file of its own and a row here.
var countings = []*algorithm{slidingLog, fixedWindow, slidingWindow, slidingTail, leakyBucket, TokenBucket, conversion}

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

// Unasked returns the verdict to allow without having asked anyone.
func (r *Rule) Unasked() Verdict { return Verdict{Allowed: true, Remaining: r.Capacity} }
