package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Plan is a policy made ready to count by: everything that does not depend on the request, nor
// on where its counts lie, is computed when the policy comes into force. Its methods are pure.
type Plan struct {
	policy.Policy
	Rules    []Rule
	Fitting  int64      // the largest cost that no limit rules out
	Logs     []LogPlan  // one for each span that the policy's logs belong to; one at most beside a cell
	Counters bool       // some rule counts in counters, or in what is kept in their place
	Tally    bool       // that is running totals
	Span     store.Span // of these
	Cell     bool       // some rule counts in the key's cell
	Serial   bool       // all rules do: counts are in the cell, and logs beside it
}

// LogPlan is what the limits of one span need of their log.
type LogPlan struct {
	Span      store.Span
	Window    time.Duration // the longest, with slack
	CountsFor store.Instant // the same, in milliseconds
	Limit     int           // the largest
}

// NewPlan returns the plan of a policy that has no Problem. Events count longer than their
// window by slack. If serial, all is counted in the key's cell.
func NewPlan(p policy.Policy, slack time.Duration, serial bool) Plan {
	c := Plan{Policy: p.WithDefaults(), Serial: serial, Fitting: policy.MaxCost}
	for i := range c.Limits {
		c.addRule(&c.Limits[i], slack)
	}
	return c
}

func (p *Plan) addRule(l *policy.Limit, slack time.Duration) {
	algorithm := countingOf(l.Algorithm)
	r := Rule{Limit: *l, ID: l.ID(), Kind: algorithm.Algorithm, algorithm: algorithm, Capacity: l.Capacity()}
	switch algorithm.Memory {
	case policy.MemoryEvents:
		r.slack = slack
		r.countsFor = store.Instant(0).Add(l.Window + r.slack)
		r.log = p.logFor(l, r.slack)
	case policy.MemoryCounters:
		p.Counters = true
		r.Width, r.lasts, r.almanac = algorithm.Width(l), algorithm.Lasts(l), newAlmanac(l)
		p.Span = max(p.Span, store.SpanOf(l.Longest()))
	case policy.MemoryCells:
		p.Cell = true
	}
	p.Cell = p.Cell || p.Serial
	if l.Limit > 0 && !l.Shadow {
		p.Fitting = min(p.Fitting, r.Capacity)
	}
	p.Rules = append(p.Rules, r)
}

// logFor returns the index of the log that l counts in, made if there is none.
func (p *Plan) logFor(l *policy.Limit, slack time.Duration) int {
	span := store.SpanOf(l.Window)
	if p.Serial {
		span = store.SpanMonth // one partition, one log
	}
	i := slices.IndexFunc(p.Logs, func(log LogPlan) bool { return log.Span == span })
	if i < 0 {
		i = len(p.Logs)
		p.Logs = append(p.Logs, LogPlan{Span: span})
	}
	log := &p.Logs[i]
	log.Window = max(log.Window, l.Window+slack)
	log.CountsFor = store.Instant(0).Add(log.Window)
	log.Limit = max(log.Limit, int(l.Limit))
	return i
}

// Query asks for what p's rules need at now, when the asker has written own
// events of its own: the limit's worth of others' and these. It reuses logs.
func (p *Plan) Query(key store.Key, now store.Instant, own int, logs []store.LogQuery) store.Query {
	for i := range p.Logs {
		log := &p.Logs[i]
		logs = append(logs, store.LogQuery{Span: log.Span, After: now - log.CountsFor, Max: log.Limit + own})
	}
	return store.Query{
		Key: key, Level: p.Consistency.Read, Logs: logs, Counts: p.Counters && !p.Serial && !p.Tally,
		Tally: p.Tally, Span: p.Span, Cell: p.Cell, ExpireAfter: now,
	}
}

// QueryAgain makes q, which was a query of p for somebody, one for key at now.
func (p *Plan) QueryAgain(q *store.Query, key store.Key, now store.Instant) {
	q.Key, q.ExpireAfter = key, now
	for i := range q.Logs {
		q.Logs[i].After = now - p.Logs[i].CountsFor
	}
}

// Begin makes d, whatever it was, a decision under p that is not made yet, and returns its
// limits.
func (p *Plan) Begin(d *Decision) []LimitDecision {
	*d = Decision{}
	d.Policy, d.Recorded = &p.Policy, RecordedNo
	limits := d.only[:]
	if len(p.Rules) > 1 {
		d.several = make([]LimitDecision, len(p.Rules))
		limits = d.several
	}
	for i := range limits {
		limits[i].Limit = &p.Rules[i].Limit
	}
	return limits
}

// Unasked returns the decision to allow without having asked anyone.
func (p *Plan) Unasked() Decision {
	var d Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		limits[i].Verdict = p.Rules[i].Unasked()
	}
	d.Conclude()
	return d
}

// Decide fills in d: it judges cost at now under all of p's rules and, if it is to
// count, adds it to s. The decision's Recorded says whether it did. The same steps are
// those of who holds keys still, which makes an id only for what counts.
func (p *Plan) Decide(d *Decision, s *store.State, op Op, id store.EventID, now store.Instant, cost int64) {
	fits := p.Weigh(d, s, now, cost)
	counts := p.Records(op, fits)
	if counts {
		p.Add(s, id, now, cost)
	}
	p.Judge(d, s, op, now, cost, fits, counts)
}

// Weigh makes d a decision that knows what is used, and whether cost fits beside it, and
// reports whether it does under all rules that may deny: those that are no shadow.
func (p *Plan) Weigh(d *Decision, s *store.State, now store.Instant, cost int64) (fits bool) {
	fits = true
	for i, limits := 0, p.Begin(d); i < len(limits); i++ {
		r, l := &p.Rules[i], &limits[i]
		l.Used = r.algorithm.used(r, s, now)
		l.Allowed = r.fits(l.Used, cost)
		fits = fits && (l.Allowed || r.Shadow)
	}
	return fits
}

// Records reports whether op is counted where it fits under all rules, or where it does not.
func (p *Plan) Records(op Op, fits bool) bool {
	return op != OpCheck && (fits || op == OpRecord || p.Count == policy.CountAll && op == OpTake)
}

// Judge completes d, by whose limits cost fits or not. If it counts, s includes it already.
func (p *Plan) Judge(d *Decision, s *store.State, op Op, now store.Instant, cost int64, fits, counts bool) {
	if counts {
		d.Recorded = RecordedYes
		if fits || op == OpRecord {
			cost = 0
		}
		p.judgeAfter(d, s, op, now, cost)
	} else {
		limits := d.Limits()
		for i := range limits {
			v := &limits[i].Verdict
			p.Rules[i].judge(v, s, now, cost, v.Used)
		}
	}
	d.Conclude()
	if counts && !fits { // who let it pass has nobody wait, though the next may have to: d itself tells that
		limits := d.Limits()
		for i := range limits {
			if v := &limits[i].Verdict; v.Allowed && op != OpRecord {
				v.RetryAfter = 0
			}
		}
	}
}

// judgeAfter replaces the verdicts by those of the state that includes the
// request. Whether it was allowed stays, and cost has to fit beside it: a denied attempt
// that counts has to wait for itself, too.
func (p *Plan) judgeAfter(d *Decision, s *store.State, op Op, now store.Instant, cost int64) {
	limits := d.Limits()
	for i := range limits {
		r, v := &p.Rules[i], &limits[i].Verdict
		allowed := v.Allowed || op == OpRecord
		r.judge(v, s, now, cost, r.algorithm.used(r, s, now))
		v.Allowed = allowed
	}
}

// Full reports whether s leaves no room for a single unit at now, under a rule that may deny. Until then others
// may have counted more, which an answer would have to tell.
func (p *Plan) Full(s *store.State, now store.Instant) bool {
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.Shadow && r.algorithm.used(r, s, now) >= r.Capacity {
			return true
		}
	}
	return false
}

// FullUntil returns until when s leaves no room for a single unit, under a rule that may deny: now if it does,
// Distant under a limit of none.
func (p *Plan) FullUntil(s *store.State, now store.Instant) store.Instant {
	until := now
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Shadow {
			continue
		}
		if r.Capacity < 1 {
			return store.Distant // no algorithm has a wait for that
		}
		if r.algorithm.used(r, s, now) >= r.Capacity {
			until = max(until, now.Add(r.algorithm.wait(r, s, now, 1)))
		}
	}
	return until
}

// Refuse denies cost by s, which is remembered, and reports true, if it leaves no room at
// an instant that is now or later.
func (p *Plan) Refuse(d *Decision, s *store.State, cost int64, at, now store.Instant) bool {
	if !p.Full(s, at) {
		return false
	}
	p.Decide(d, s, OpCheck, store.EventID{}, at, cost)
	d.Postpone(at.Sub(now))
	d.Remembered = true
	return true
}

// SteadyUntil returns until when what p tells of s at now stays the same if nothing is counted.
func (p *Plan) SteadyUntil(s *store.State, now store.Instant) store.Instant {
	until := store.Distant
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.algorithm.steady == nil {
			return now
		}
		until = min(until, r.algorithm.steady(r, s, now))
	}
	return until
}
