package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// RuleSet is a policy with its limits as rules, prepared for counting: values that depend neither on the request nor on
// the place of its counts are computed when the policy comes into force. Its methods are pure.
type RuleSet struct {
	policy.Policy
	Rules    []Rule
	Fitting  int64      // the largest cost that no limit rules out
	Logs     []LogRules // one for each span of the policy's logs
	Counters bool       // some rule counts in counters, or in running totals in their place
	Tally    bool       // Counters are replaced by running totals
	Span     store.Span // of the running totals
	Cell     bool       // some rule counts in the key's cell
	Releases bool       // all rules are concurrent: units are released, often and soon
}

// LogRules says how many events of a log the limits of one span need.
type LogRules struct {
	Span      store.Span
	Window    time.Duration // the longest, with slack
	CountsFor store.Instant // Window in milliseconds
	Limit     int           // the largest that a demand may have
	// Beyond is how many events are read beyond the limit: one if units are released all the time. A log that was read with
	// no more events than the limit is then known to lack none.
	Beyond int
	slack  time.Duration // how much longer an event counts because clocks differ
}

// NewRuleSet returns the rules of a policy that has no Problem. Events count for their window plus slack.
func NewRuleSet(p policy.Policy, slack time.Duration) RuleSet {
	c := RuleSet{Policy: p.WithDefaults(), Fitting: policy.MaxCost, Releases: p.IsConcurrent()}
	for i := range c.Limits {
		c.addRule(&c.Limits[i], slack)
	}
	return c
}

func (p *RuleSet) addRule(l *policy.Limit, slack time.Duration) {
	algorithm := algorithmOf(l.Algorithm)
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
	p.Fitting = min(p.Fitting, r.fitting())
	p.Rules = append(p.Rules, r)
}

// fitting returns the largest cost that r does not rule out.
func (r *Rule) fitting() int64 {
	if r.Limit.Limit > 0 && !r.Shadow {
		return r.Capacity
	}
	return policy.MaxCost
}

// Asked returns p for a demand that brings units as its limit. It counts in the same places as p, and keeps as many
// events.
func (p *RuleSet) Asked(units int64) RuleSet {
	other := *p
	other.Limits, other.Rules, other.Fitting = slices.Clone(p.Limits), slices.Clone(p.Rules), policy.MaxCost
	for i := range other.Rules {
		r := &other.Rules[i]
		if r.Max != 0 {
			r.Limit, r.Capacity = r.Asked(units), units
			other.Limits[i] = r.Limit
		}
		other.Fitting = min(other.Fitting, r.fitting())
	}
	return other
}

// logFor returns the index of the log that l counts in, and adds the log if there is none yet.
func (p *RuleSet) logFor(l *policy.Limit, slack time.Duration) int {
	span := store.SpanOf(l.Window)
	i := slices.IndexFunc(p.Logs, func(log LogRules) bool { return log.Span == span })
	if i < 0 {
		i = len(p.Logs)
		p.Logs = append(p.Logs, LogRules{Span: span, slack: slack})
	}
	log := &p.Logs[i]
	log.Window = max(log.Window, l.Window+slack)
	log.CountsFor = store.Instant(0).Add(log.Window)
	log.Limit = max(log.Limit, int(l.Limit), int(l.Max))
	if p.Releases {
		log.Beyond = 1
	}
	return i
}

// Query returns the query for the state that p's rules need at now. The caller itself has written as many events as own
// says, so the query asks for that many beyond the limit. It reuses logs.
func (p *RuleSet) Query(key store.Key, now store.Instant, own int, logs []store.LogQuery) store.Query {
	for i := range p.Logs {
		log := &p.Logs[i]
		logs = append(logs, store.LogQuery{Span: log.Span, After: now - log.CountsFor, Max: log.Limit + own + log.Beyond})
	}
	return store.Query{
		Key: key, Level: p.Consistency.Read, Logs: logs, Counts: p.Counters && !p.Tally,
		Tally: p.Tally, Span: p.Span, Cell: p.Cell, ExpireAfter: now,
	}
}

// Prune removes from log, which was read for p, the events that no longer count at now, and all but the newest events up to
// the limit plus spare. Holds don't use up that number: once they have ended, earlier events are needed in their place.
func (p *LogRules) Prune(log *store.Log, now store.Instant, spare int) {
	gone := 0
	for gone < len(log.Events) && log.Events[gone].At <= now-p.CountsFor {
		gone++
	}
	if gone > 0 {
		*log = log.From(gone)
	}
	most := p.Limit + spare
	if len(log.Events) <= most {
		return
	}
	log.Events = slices.DeleteFunc(log.Events, func(e store.Event) bool { return e.Ends != 0 && e.Ends.Add(p.slack) <= now })
	for gone = len(log.Events); gone > 0 && most > 0; gone-- {
		if log.Events[gone-1].Ends == 0 {
			most--
		}
	}
	*log = store.Log{Events: log.Events[gone:]}
}

// TakeOut removes units from the logs and counters of s.
func (p *RuleSet) TakeOut(s *store.State, units []Entry) {
	for i := range s.Logs {
		log := &s.Logs[i]
		log.Sum = 0
		log.Events = slices.DeleteFunc(log.Events, func(e store.Event) bool {
			return slices.ContainsFunc(units, func(u Entry) bool { return u.ID == e.ID })
		})
	}
	for i := range units {
		for _, c := range p.AppendCounts(nil, units[i].Epoch, units[i].At, -units[i].Cost) {
			s.Add(c)
		}
	}
}

// IsAhead reports whether anything in s that p counts has a later time than now. The cell of s is decoded.
func (p *RuleSet) IsAhead(s *store.State, now store.Instant) bool {
	if s.Reset > now {
		return true
	}
	for i := range s.Logs {
		if events := s.Logs[i].Events; len(events) > 0 && events[len(events)-1].At > now {
			return true
		}
	}
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start > now && c.Units != 0 && p.RuleOf(c.Limit) != nil {
			return true
		}
	}
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.At > now && p.RuleOf(b.Limit) != nil {
			return true
		}
	}
	for i := range s.Conversions {
		if c := &s.Conversions[i]; c.Last > now && p.RuleOf(c.Limit) != nil {
			return true
		}
	}
	return false
}

// Op is an operation on a demand.
type Op string

// The operations on a demand.
const (
	OpCheck  Op = "check"  // say whether it would be allowed; count nothing
	OpRecord Op = "record" // count it whatever the limits
	OpTake   Op = "take"   // count it if it is allowed

	OpReserve Op = "reserve" // hold it if it is allowed; never count a denial
)

// MayDeny reports whether o counts allowed calls only.
func (o Op) MayDeny() bool { return o == OpTake || o == OpReserve }

// Decide overwrites d with the decision on cost at now under all of p's rules. If cost is to count, it adds it to s,
// under id, and sets d.Recorded.
func (p *RuleSet) Decide(d *Decision, s *store.State, op Op, id store.EventID, now store.Instant, cost int64) {
	limits, fits := p.Begin(d), true
	for i := range limits {
		r, l := &p.Rules[i], &limits[i]
		l.Used = r.algorithm.used(r, s, now)
		l.Allowed = r.fits(s, now, l.Used, cost)
		fits = fits && (l.Allowed || r.Shadow)
	}
	passes := fits || op == OpRecord
	if op == OpCheck || !passes && (p.Count != policy.CountAll || op != OpTake) { // it does not count
		for i := range limits {
			p.Rules[i].judge(&limits[i].Verdict, s, now, cost, limits[i].Used)
		}
		d.Conclude()
		return
	}
	d.Recorded = RecordedYes
	p.Add(s, id, now, cost)
	if passes {
		cost = 0 // nothing has to fit any more; after a denied attempt that counts, the next one must fit beside it
	}
	for i := range limits { // Allowed stays as it is; the other numbers are after the operation
		r, v := &p.Rules[i], &limits[i].Verdict
		allowed := v.Allowed || op == OpRecord
		r.judge(v, s, now, cost, r.algorithm.used(r, s, now))
		v.Allowed = allowed
	}
	d.Conclude()
	if passes {
		return
	}
	for i := range limits { // a limit that allowed it has no wait; if the next call must wait, only d's own verdict says so
		if v := &limits[i].Verdict; v.Allowed {
			v.RetryAfter = 0
		}
	}
}

// Begin overwrites d with an empty decision under p, and returns its limits.
func (p *RuleSet) Begin(d *Decision) []LimitDecision {
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

// judge fills in v: whether cost fits into r at now beside used, and the remaining units. A cost of 0 asks only for the
// remaining units. A rule in shadow has no wait.
func (r *Rule) judge(v *Verdict, s *store.State, now store.Instant, cost, used int64) {
	v.Allowed, v.Used, v.Remaining = r.fits(s, now, used, cost), used, max(0, r.Capacity-used)
	if v.Remaining == 0 && r.fits(s, now, used, 1) {
		v.Remaining = 1 // a probe
	}
	v.ResetAfter, v.RetryAfter = 0, 0
	if used > 0 && r.Capacity > 0 {
		v.ResetAfter = r.algorithm.wait(r, s, now, r.Capacity)
	}
	switch {
	case v.Allowed, r.Shadow:
	case cost > r.Capacity:
		v.RetryAfter = Never
	default:
		v.RetryAfter = r.waitFor(s, now, cost)
	}
}

// fits reports whether r has room at now for cost beside used, or lets it pass as a probe.
func (r *Rule) fits(s *store.State, now store.Instant, used, cost int64) bool {
	return cost == 0 || store.AddSaturating(used, cost) <= r.Capacity ||
		cost == 1 && r.algorithm.probe != nil && r.algorithm.probe(r, s, now) == 0
}

// waitFor returns the time from now until cost, which does not fit, fits or may pass as a probe.
func (r *Rule) waitFor(s *store.State, now store.Instant, cost int64) time.Duration {
	wait := r.algorithm.wait(r, s, now, cost)
	if cost == 1 && r.algorithm.probe != nil {
		wait = min(wait, r.algorithm.probe(r, s, now))
	}
	return wait
}

// Add adds a request of cost at now to s.
func (p *RuleSet) Add(s *store.State, id store.EventID, now store.Instant, cost int64) {
	for i := range s.Logs {
		s.Logs[i].Insert(store.Event{ID: id, At: now, Cost: cost})
	}
	for i := range p.Rules {
		switch r := &p.Rules[i]; r.Kind.Memory {
		case policy.MemoryCounters:
			s.Add(r.CountOf(s.Reset, now, cost))
		case policy.MemoryCells:
			r.algorithm.add(r, s, now, cost)
		}
	}
}

// Conclude fills in d's own verdict from those of its limits.
func (d *Decision) Conclude() {
	tightest := &d.only[0]
	if d.Tightest, d.Verdict = 0, tightest.Verdict; tightest.Limit == nil {
		tightest = d.concludeSeveral()
	}
	if tightest.Limit.Shadow { // p is a part of a policy, and the enforced limits are in another part
		d.Allowed, d.RetryAfter = true, 0
	}
	d.WouldAllow = d.Allowed
	if d.Policy.Mode != policy.ModeEnforce {
		d.Allowed = true
	}
}

// concludeSeveral fills in the index of the tightest of several limits, and its verdict, and returns it.
func (d *Decision) concludeSeveral() *LimitDecision {
	limits := d.several
	d.Tightest = 0
	for i := 1; i < len(limits); i++ {
		if tighter(&limits[i], &limits[d.Tightest]) {
			d.Tightest = i
		}
	}
	d.Verdict = limits[d.Tightest].Verdict
	for i := range limits { // the request passes when all of them have room
		if after := limits[i].RetryAfter; after == Never || d.RetryAfter != Never && after > d.RetryAfter {
			d.RetryAfter = after
		}
	}
	return &limits[d.Tightest]
}

// tighter reports whether a rather than b is the limit to report. Limits in shadow come after all others.
func tighter(a, b *LimitDecision) bool {
	if a.Limit.Shadow != b.Limit.Shadow {
		return b.Limit.Shadow
	}
	if a.Allowed != b.Allowed {
		return b.Allowed
	}
	if !a.Allowed {
		return b.RetryAfter != Never && (a.RetryAfter == Never || a.RetryAfter > b.RetryAfter)
	}
	return mulLess(a.Remaining, b.Limit.Capacity(), b.Remaining, a.Limit.Capacity())
}

// Unasked returns the decision to allow without reading counts.
func (p *RuleSet) Unasked() Decision { return p.unasked((*Rule).Unasked) }

// unasked returns the decision with the verdict that verdict returns for each rule, without reading counts. Rules in
// shadow deny nothing.
func (p *RuleSet) unasked(verdict func(*Rule) Verdict) (d Decision) {
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		if r := &p.Rules[i]; r.Shadow {
			limits[i].Verdict = r.Unasked()
		} else {
			limits[i].Verdict = verdict(r)
		}
	}
	d.Conclude()
	return d
}

// DenyFor returns the decision to deny for the rest of a block, which is Never for one without end. It reads no counts: its
// numbers are those of enforced limits that are reached.
func (p *RuleSet) DenyFor(rest time.Duration) Decision {
	d := p.unasked(func(r *Rule) Verdict {
		v := Verdict{Used: r.Capacity, ResetAfter: max(0, rest), RetryAfter: rest}
		if r.Limit.Limit == 0 {
			v.RetryAfter = Never
		}
		return v
	})
	d.Blocked = true
	return d
}

// Refused returns the decision to deny for a reason that no wait changes, without reading counts.
func (p *RuleSet) Refused(reason policy.Reason) Decision {
	d := p.unasked(func(*Rule) Verdict { return Verdict{RetryAfter: Never} })
	d.Reason = reason
	return d
}

// Fits reports whether s has room for cost at now under all enforced rules.
func (p *RuleSet) Fits(s *store.State, now store.Instant, cost int64) bool {
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.Shadow && !r.fits(s, now, r.algorithm.used(r, s, now), cost) {
			return false
		}
	}
	return true
}

// Full reports whether s has no room at now for a single unit under some enforced rule. A state that is not full can't
// answer for later calls, because other instances may have counted more since.
func (p *RuleSet) Full(s *store.State, now store.Instant) bool { return !p.Fits(s, now, 1) }

// FullUntil returns the instant until which s has no room for a single unit under some enforced rule: now if it has room,
// Distant under a limit of 0.
func (p *RuleSet) FullUntil(s *store.State, now store.Instant) store.Instant {
	until := now
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Shadow {
			continue
		}
		if r.Capacity < 1 {
			return store.Distant // no algorithm has a wait for a limit of 0
		}
		if !r.fits(s, now, r.algorithm.used(r, s, now), 1) {
			until = max(until, now.Add(r.waitFor(s, now, 1)))
		}
	}
	return until
}

// Refuse denies cost, and returns true, if the remembered state s has no room for a unit at the instant at, which is now
// or later.
func (p *RuleSet) Refuse(d *Decision, s *store.State, cost int64, at, now store.Instant) bool {
	if p.Fits(s, at, 1) {
		return false
	}
	p.Decide(d, s, OpCheck, store.EventID{}, at, cost)
	if at > now {
		d.Postpone(at.Sub(now))
	}
	d.Remembered = true
	return true
}

// SteadyUntil returns the instant until which p's verdicts on s at now stay the same if nothing is counted.
func (p *RuleSet) SteadyUntil(s *store.State, now store.Instant) store.Instant {
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
