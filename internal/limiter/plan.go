package limiter

import (
	"slices"
	"time"
)

// plan is a policy made ready to decide: everything that does not depend on the
// request is computed when the policy comes into force.
type plan struct {
	Policy
	keys      *Keys
	rules     []rule
	logs      []logPlan  // one for each span that the policy's logs belong to
	logWrites []LogWrite // the same, as a Write names them
	counters  bool       // some rule counts in counters
	promising bool       // its levels promise that a read sees what was written before
	resetTTL  time.Duration
}

// logPlan is what the limits of one span need of their log.
type logPlan struct {
	span   Span
	window time.Duration // the longest, with slack
	limit  int           // the largest
}

func newPlan(policy Policy, o *Options) *plan {
	p := &plan{Policy: policy.WithDefaults()}
	p.Consistency = p.Consistency.WithDefault(o.Consistency)
	p.promising = p.Consistency.Scope() != ScopeNone
	space := KeySpace{Policy: p.Name, Guarantee: p.Guarantee}
	if p.Consistency.Scope() == ScopeDatacenter {
		space.Scope = o.Datacenter
	}
	p.keys = o.Keyer.For(space)
	slack := 2 * o.ClockTolerance
	for _, l := range p.Limits {
		algorithm, _ := algorithmByName(l.Algorithm) // Problems has found it
		r := rule{Limit: l, id: l.ID(), algorithm: algorithm}
		if algorithm.memory == memoryEvents {
			r.slack = slack
			r.log = p.logFor(l, slack)
		} else {
			p.counters = true
			r.width, r.lasts = algorithm.width(&l), algorithm.lasts(&l)
		}
		p.rules = append(p.rules, r)
	}
	for _, log := range p.logs {
		p.logWrites = append(p.logWrites, LogWrite{Span: log.span, TTL: log.ttl(o), Keep: log.limit + 1})
	}
	p.resetTTL = wholeSeconds(2*p.longestWindow()+slack+o.StoreTimeout) + time.Second + o.ClockError
	return p
}

// logFor returns the index of the log that l counts in, made if there is none.
func (p *plan) logFor(l Limit, slack time.Duration) int {
	span := SpanOf(l.Window)
	i := slices.IndexFunc(p.logs, func(log logPlan) bool { return log.span == span })
	if i < 0 {
		i = len(p.logs)
		p.logs = append(p.logs, logPlan{span: span})
	}
	log := &p.logs[i]
	log.window = max(log.window, l.Window+slack)
	log.limit = max(log.limit, int(l.Limit))
	return i
}

// ttl returns how long an event of the log must live. A store cuts times to live
// to whole seconds and counts them by its nodes' clocks, hence the two terms at
// the end; the event is dated before it is written, hence the timeout.
func (log *logPlan) ttl(o *Options) time.Duration {
	return wholeSeconds(log.window+o.StoreTimeout) + time.Second + o.ClockError
}

// wholeSeconds rounds d up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// query asks for what p's rules need at now, when the asker has written own
// events of its own: the limit's worth of others' and these. It reuses logs.
func (p *plan) query(key Key, now Instant, own int, logs []LogQuery) Query {
	for i := range p.logs {
		log := &p.logs[i]
		logs = append(logs, LogQuery{Span: log.span, After: now.Add(-log.window), Max: log.limit + own})
	}
	return Query{Key: key, Level: p.Consistency.Read, Logs: logs, Counts: p.counters, ExpireAfter: now}
}

// decide judges cost at now under all of p's rules and, if it is to count, adds
// it to s. The decision's Recorded says whether it did.
func (p *plan) decide(s *State, op Op, id EventID, now Instant, cost int64) Decision {
	d := Decision{Policy: &p.Policy, Limits: make([]LimitDecision, len(p.rules)), Recorded: RecordedNo}
	fits := true
	for i := range p.rules {
		r := &p.rules[i]
		v := r.judge(s, now, cost)
		fits = fits && v.Allowed
		d.Limits[i] = LimitDecision{Limit: &r.Limit, Verdict: v}
	}
	if op != OpCheck && (fits || op == OpRecord || p.Count == CountAll) {
		p.count(s, id, now, cost)
		d.Recorded = RecordedYes
		p.judgeAfter(&d, s, op, now, cost)
	}
	d.conclude()
	return d
}

// judgeAfter replaces the verdicts by those of the state that includes the
// request. Whether it was allowed stays, and a denied attempt that counts has to
// wait for itself, too.
func (p *plan) judgeAfter(d *Decision, s *State, op Op, now Instant, cost int64) {
	denied := slices.ContainsFunc(d.Limits, func(l LimitDecision) bool { return !l.Allowed })
	if !denied || op == OpRecord {
		cost = 0
	}
	for i := range p.rules {
		allowed := d.Limits[i].Allowed || op == OpRecord
		d.Limits[i].Verdict = p.rules[i].judge(s, now, cost)
		d.Limits[i].Allowed = allowed
	}
}

// count adds a request of cost at now to s.
func (p *plan) count(s *State, id EventID, now Instant, cost int64) {
	for i := range s.Logs {
		s.Logs[i].Events = insertEvent(s.Logs[i].Events, Event{ID: id, At: now, Cost: cost})
	}
	for i := range p.rules {
		if p.rules[i].algorithm.memory == memoryCounters {
			s.add(p.rules[i].countOf(s.Reset, now, cost))
		}
	}
}

// countOf returns units as they are added to now's counter under epoch.
func (r *rule) countOf(epoch, now Instant, units int64) Count {
	start := now.floor(r.width)
	return Count{Limit: r.id, Start: start, Expires: start.Add(r.lasts), Epoch: epoch, Units: units}
}

// appendCounts appends to counts what p's rules add for units at now.
func (p *plan) appendCounts(counts []Count, epoch, now Instant, units int64) []Count {
	for i := range p.rules {
		if p.rules[i].algorithm.memory == memoryCounters {
			counts = append(counts, p.rules[i].countOf(epoch, now, units))
		}
	}
	return counts
}

// insertEvent returns events with one more, in order of time. It never changes
// what events holds already: the slice may be the store's own.
func insertEvent(events []Event, event Event) []Event {
	n := len(events)
	if n == 0 || events[n-1].At <= event.At {
		return append(events, event)
	}
	i, _ := slices.BinarySearchFunc(events, event.At+1, func(e Event, at Instant) int { return int(e.At - at) })
	return slices.Insert(slices.Clip(events), i, event)
}
