package replay

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Result has the outcomes of the events.
type Result struct {
	Policies map[string]*PolicyResult // those that were asked, by their names
	Series   *Series
	Unjudged []string // policies that are off since they depend on confirmations, which no log has; in order
	Untimed  []string // policies that are off since they bound requests under way, whose ends no log has; in order
}

// PolicyResult has the outcomes of the events that one policy was asked for.
type PolicyResult struct {
	Policy   *policy.Policy // with its defaults; of the policies to compare with, if it is there only
	Requests int64
	Denied   int64
	// DeniedBy has the denials by each limit, the one that the caller is told, then by a block, then by a rule about
	// numbers. Those of a limit in shadow are the requests that it would deny and the others admit; Denied is without them.
	DeniedBy []int64

	// Under the policies to compare with.
	RequestsAgainst int64
	DeniedAgainst   int64
	DeniedBoth      int64 // under both

	Trials [][]Trial // of each limit; empty: it was not tried

	exact   []bool // of each limit, as Exact
	callers *callers
	hits    hits
}

// unlimited is the number of reasons for denials beside limits.
const unlimited = 2

// Trial is a number that a limit might have.
type Trial struct {
	Number int64 `json:"number"`
	Denied int64 `json:"denied"` // requests that the policy then denies; an estimate if callers are sampled
}

// result returns the outcomes of p's events so far.
func (r *Replay) result(p *inForce) *PolicyResult {
	made := r.Policies[p.Name]
	if made == nil {
		made = &PolicyResult{Policy: &p.Policy, DeniedBy: make([]int64, len(p.Limits)+unlimited), callers: newCallers(len(p.Limits))}
		for i := range p.trials {
			made.Trials = append(made.Trials, p.trials[i].start())
			made.exact = append(made.exact, p.trials[i].exact())
		}
		r.Policies[p.Name] = made
	}
	return made
}

// note counts the outcome of s.
func (p *PolicyResult) note(bin *Bin, s *subject, at store.Instant) {
	counts := bin.of(p.Policy.Name, len(p.Policy.Limits))
	counts.Requests++
	counts.callers.InsertHash(s.hash)
	p.Requests++
	if s.caller != nil {
		s.caller.requests++
	}
	p.hits.note(s, at)
	for i := range p.Policy.Limits {
		if p.Policy.Limits[i].Shadow && s.policy.denies(i, &s.decision) {
			counts.Denied[i]++
			p.DeniedBy[i]++
		}
	}
	if !s.denied() {
		return
	}
	by := s.decision.Tightest
	switch {
	case s.decision.Reason != "":
		by = len(p.Policy.Limits) + 1
	case s.decision.Blocked:
		by = len(p.Policy.Limits)
	}
	counts.Denied[by]++
	p.DeniedBy[by]++
	p.Denied++
	if s.caller != nil {
		s.caller.denied++
	}
}

// noteAgainst counts the outcome of s under the policies to compare with. denied reports whether the other policies
// deny it.
func (p *PolicyResult) noteAgainst(bin *Bin, s *subject, denied bool) {
	counts := bin.of(p.Policy.Name, len(p.Policy.Limits))
	p.RequestsAgainst++
	if !s.denied() {
		return
	}
	p.DeniedAgainst++
	counts.Against++
	if denied {
		p.DeniedBoth++
	}
	if s.caller != nil {
		s.caller.against++
	}
}

// Sampled reports whether the numbers of callers are estimates, by a sample of them.
func (p *PolicyResult) Sampled() bool { return p.callers.level > 0 }

// Callers returns the number of callers, denied or not.
func (p *PolicyResult) Callers() int64 {
	return p.callers.sum(func(c *caller) bool { return c.requests > 0 })
}

// CallersHit returns the number of callers that were denied at least once.
func (p *PolicyResult) CallersHit() int64 {
	return p.callers.sum(func(c *caller) bool { return c.denied > 0 })
}

// CallersHitAgainst returns the number of callers that were denied under the policies to compare with, and of those that
// were denied under one of both only.
func (p *PolicyResult) CallersHitAgainst() (all, onlyNow, onlyAgainst int64) {
	all = p.callers.sum(func(c *caller) bool { return c.against > 0 })
	onlyNow = p.callers.sum(func(c *caller) bool { return c.denied > 0 && c.against == 0 })
	onlyAgainst = p.callers.sum(func(c *caller) bool { return c.denied == 0 && c.against > 0 })
	return all, onlyNow, onlyAgainst
}

// HitTimes returns, for each of bounds, the number of callers with so many denials or more, but fewer than the next one.
func (p *PolicyResult) HitTimes(bounds []uint32) []int64 {
	times := make([]int64, len(bounds))
	for _, c := range p.callers.index {
		if at, exact := slices.BinarySearch(bounds, c.denied); exact {
			times[at] += p.callers.weight()
		} else if at > 0 {
			times[at-1] += p.callers.weight()
		}
	}
	return times
}

// Hits returns the n callers that were denied most often. trimmed reports that more were denied than are kept, so that
// one whose denials began late may be missing.
func (p *PolicyResult) Hits(n int) (top []*Hit, trimmed bool) { return p.hits.top(n), p.hits.trimmed }

// Spares returns the number of a limit with which its policy denies at most the share beyond of its callers anything,
// and how many callers that are. ok is false if no tried number does so, as something else may deny them in any case.
func (p *PolicyResult) Spares(limit int, beyond float64) (number, denied int64, ok bool) {
	if limit >= len(p.Trials) || len(p.Trials[limit]) == 0 || len(p.callers.index) == 0 {
		return 0, 0, false
	}
	if p.Exact(limit) {
		return p.sparesExactly(limit, beyond)
	}
	most := int64(beyond * float64(p.Callers()))
	for n, trial := range p.Trials[limit] {
		denied = p.callers.sum(func(c *caller) bool { return c.limits[limit].denied>>n&1 == 1 })
		if denied <= most {
			return trial.Number, denied, true
		}
	}
	return 0, 0, false
}

// Exact reports whether the number that Spares returns is the lowest of all that do so, and not only of those that were
// tried.
func (p *PolicyResult) Exact(limit int) bool { return limit < len(p.exact) && p.exact[limit] }

func (p *PolicyResult) sparesExactly(limit int, beyond float64) (number, denied int64, ok bool) {
	peaks := p.callers.peaks(limit)
	if len(peaks) == 0 {
		return 0, 0, false
	}
	at := max(0, len(peaks)-1-int(beyond*float64(len(peaks))))
	number = peaks[at]
	above, _ := slices.BinarySearch(peaks, number+1)
	trials := p.Trials[limit]
	if number > trials[len(trials)-1].Number {
		return 0, 0, false
	}
	return number, int64(len(peaks)-above) * p.callers.weight(), true
}
