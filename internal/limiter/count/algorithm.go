package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// algorithm is the arithmetic of one of a policy's algorithms. Its functions are pure: the same rule, state and
// arguments give the same answer.
type algorithm struct {
	*policy.Algorithm

	// used returns the units that count against the rule at now.
	used func(r *Rule, s *store.State, now store.Instant) int64
	// wait returns the time from now until cost fits; 0 if it fits now. cost is at most the rule's Capacity.
	wait func(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration
	// steady returns the instant until which the used units stay the same if nothing is counted. A nil steady means that
	// they may change at any time.
	steady func(r *Rule, s *store.State, now store.Instant) store.Instant

	// probe returns the time from now until one unit may pass although it does not fit. A nil probe means that none may.
	probe func(r *Rule, s *store.State, now store.Instant) time.Duration

	// These are for memory of cells only. add adds units at now to the rule's part of the cell. remove removes, at now,
	// units that were added at the instant at, except the kept further units of the same addition. After a clock was set
	// back, redate gives everything that has a later time than now the time now.
	add    func(r *Rule, s *store.State, now store.Instant, units int64)
	remove func(r *Rule, s *store.State, now, at store.Instant, units, kept int64)
	redate func(r *Rule, s *store.State, now store.Instant)
}

// algorithms lists all of them. A new one is a file of its own and an element here.
var algorithms = []*algorithm{slidingLog, fixedWindow, slidingWindow, slidingTail, leakyBucket, TokenBucket, conversion, concurrent}

// algorithmOf returns the arithmetic of the algorithm called name. A valid limit must have that algorithm.
func algorithmOf(name string) *algorithm {
	i := slices.IndexFunc(algorithms, func(a *algorithm) bool { return a.Name == name })
	return algorithms[i]
}

// Rule is a limit, with everything that can be computed before a request comes.
type Rule struct {
	policy.Limit
	ID        policy.LimitID
	Kind      *policy.Algorithm // the fields and the memory of its algorithm
	algorithm *algorithm        // the arithmetic of its algorithm
	slack     time.Duration     // how much longer a log's event counts because clocks differ
	countsFor store.Instant     // window and slack, in milliseconds
	log       int               // index into State.Logs; memory of events only
	Capacity  int64             // the most units at once: the limit, or a token bucket's burst
	almanac   *almanac          // of calendar windows; nil: all windows have the same length
	Width     time.Duration     // length of a counter's window, nominal if windows follow a calendar; memory of counters only
	lasts     time.Duration     // how long after its start a counter can affect decisions; memory of counters only
}

// WindowAt returns the window of r's counters that contains at: from start on, before end.
func (r *Rule) WindowAt(at store.Instant) (start, end store.Instant) {
	if r.almanac != nil {
		return r.almanac.window(at)
	}
	start = at.Floor(r.Width)
	return start, start.Add(r.Width)
}

// Unasked returns the verdict of a rule that allows without reading counts.
func (r *Rule) Unasked() Verdict { return Verdict{Allowed: true, Remaining: r.Capacity} }
