package limiter

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// plan is a policy made ready to decide: everything that does not depend on the
// request is computed when the policy comes into force.
type plan struct {
	Policy
	keys      []*Keys // what is written goes under the first, what is read is under any
	rules     []rule
	fitting   int64      // the largest cost that no limit rules out
	logs      []logPlan  // one for each span that the policy's logs belong to; one at most beside a cell
	logWrites []LogWrite // the same, as a Write names them
	counters  bool       // some rule counts in counters, or in what is kept in their place
	tally     bool       // that is running totals
	span      Span       // of these
	cell      bool       // some rule counts in the key's cell
	serial    bool       // all rules do: counts are in the cell, and logs beside it
	promising bool       // its levels promise that a read sees what was written before
	resetTTL  time.Duration
	print     uint64 // of the policy's definition
	sums      uint64 // tells the limits whose units are in counters and cells from others
	behind    bool   // owners admit from memory, and write that behind
	regional  bool   // what it promises ends at a data centre's border, and claims about it may

	parts []*plan // what is decided apart in a store that can't hold a key still; none: the plan itself
	limit []int   // of a part: for each rule, where the whole policy has its limit
	local *plan   // of the same policy, for OnStoreErrorLocal; nil: nobody decides locally

	read    ReadIdentifier // nil: identifiers are taken as they are
	derives []*plan        // of what is derived, one for each part that read returns
}

// logPlan is what the limits of one span need of their log.
type logPlan struct {
	span   Span
	window time.Duration // the longest, with slack
	counts Instant       // the same, in milliseconds
	limit  int           // the largest
}

// newPlan returns the plan of policy in a store that holds keys still, or in one
// that can't.
func newPlan(policy Policy, o *Options, still bool) *plan {
	p := &plan{Policy: policy.WithDefaults()}
	p.Consistency = p.Consistency.WithDefault(o.Consistency)
	p.promising = p.Consistency.Scope() != ScopeNone
	p.serial = !still && p.Guarantee == GuaranteeSerial
	p.behind = !still && p.Guarantee == GuaranteeLocal
	if p.behind {
		p.Counting = CountingRows // what was written and is repeated must not count twice
	}
	p.fitting = MaxCost
	for i := range p.Limits {
		p.addRule(&p.Limits[i], o)
	}
	inCell := p.cell && (p.serial || len(p.logs) == 0 && !p.counters)
	space := p.space(o, inCell && !still)
	p.keys = []*Keys{o.Keyer.For(space).cachedIn(o.keys)}
	if !inCell { // a cell's condition spans one key: it starts anew under another
		for i := range o.AlsoRead {
			p.keys = append(p.keys, o.AlsoRead[i].For(space).cachedIn(o.keys))
		}
	}
	for _, log := range p.logs {
		p.logWrites = append(p.logWrites, LogWrite{Span: log.span, TTL: log.ttl(o), Keep: log.limit + 1})
	}
	p.regional = still || p.Consistency.Scope() == ScopeDatacenter || inCell
	if p.cell && !still {
		p.regional = p.regional && o.Serial.scope() == ScopeDatacenter
	}
	p.tally = p.counters && !still && !p.serial && p.Counting == CountingRows
	p.sums, p.print = p.sumLimits(), printOf(&p.Policy)
	p.resetTTL = wholeSeconds(2*p.longestWindow()+o.slack()+o.StoreTimeout) + time.Second + o.ClockError
	if !still && !p.serial {
		p.split(o)
	}
	return p
}

// sumLimits returns a hash of the limits whose units are sums, not events: only what
// was counted for the same ones, in windows that begin where they began, can be given back.
func (p *plan) sumLimits() uint64 {
	sum := sha256.New()
	for i := range p.rules {
		r := &p.rules[i]
		if r.algorithm.memory == memoryEvents {
			continue
		}
		sum.Write(appendPart(nil, string(r.id)))
		if r.algorithm == slidingWindow {
			sum.Write(appendPart(nil, r.width.String()))
		}
	}
	return binary.BigEndian.Uint64(sum.Sum(nil))
}

// space returns what the policy's keys have in common. Where they are those of cells,
// compare-and-set says how far a promise reaches, not the levels of reads and writes.
func (p *plan) space(o *Options, ofCells bool) KeySpace {
	space := KeySpace{Policy: p.Name, Guarantee: p.Guarantee}
	scope := p.Consistency.Scope()
	if ofCells || p.Guarantee == GuaranteeSerial {
		space.SerialLevel = string(o.Serial)
		scope = o.Serial.scope()
	}
	if scope == ScopeDatacenter {
		space.Scope = o.datacenter()
	}
	return space
}

// slack returns how much longer than its window an event counts, for instances'
// clocks that differ.
func (o *Options) slack() time.Duration { return 2 * o.ClockTolerance }

// isSetBack reports whether the clock, which says now, said made before and was set back
// since, by more than clocks may differ and a second: what was remembered then is not to be
// gone by. A second is what rows live longer than they matter, so that those that were
// stored by a clock that was less ahead are still there.
func (o *Options) isSetBack(made, now Instant) bool { return made > now.Add(o.slack()+time.Second) }

func (p *plan) addRule(l *Limit, o *Options) {
	algorithm, _ := algorithmByName(l.Algorithm) // Problems has found it
	r := rule{Limit: *l, id: l.ID(), algorithm: algorithm, capacity: l.Capacity()}
	switch algorithm.memory {
	case memoryEvents:
		r.slack = o.slack()
		r.counts = Instant(0).Add(l.Window + r.slack)
		r.log = p.logFor(l, r.slack)
	case memoryCounters:
		p.counters = true
		r.width, r.lasts, r.almanac = algorithm.width(l), algorithm.lasts(l), newAlmanac(l)
		p.span = max(p.span, SpanOf(l.longest()))
	case memoryCells:
		p.cell = true
	}
	p.cell = p.cell || p.serial
	if l.Limit > 0 {
		p.fitting = min(p.fitting, r.capacity)
	}
	p.rules = append(p.rules, r)
}

// split makes parts of a policy whose limits are not all kept the same way: what is
// written first and counted then, and the buckets, which are compared and set.
func (p *plan) split(o *Options) {
	inCell := func(l Limit) bool { a, _ := algorithmByName(l.Algorithm); return a.memory == memoryCells }
	if !p.cell || !slices.ContainsFunc(p.Limits, func(l Limit) bool { return !inCell(l) }) {
		return
	}
	for _, cell := range []bool{true, false} { // the buckets first: a denial there costs nothing to undo
		part := p.Policy
		part.Limits = nil
		var limit []int
		for i, l := range p.Limits {
			if inCell(l) == cell {
				part.Limits, limit = append(part.Limits, l), append(limit, i)
			}
		}
		made := newPlan(part, o, false)
		made.limit = limit
		p.parts = append(p.parts, made)
	}
}

// logFor returns the index of the log that l counts in, made if there is none.
func (p *plan) logFor(l *Limit, slack time.Duration) int {
	span := SpanOf(l.Window)
	if p.serial {
		span = SpanMonth // one partition, one log
	}
	i := slices.IndexFunc(p.logs, func(log logPlan) bool { return log.span == span })
	if i < 0 {
		i = len(p.logs)
		p.logs = append(p.logs, logPlan{span: span})
	}
	log := &p.logs[i]
	log.window = max(log.window, l.Window+slack)
	log.counts = Instant(0).Add(log.window)
	log.limit = max(log.limit, int(l.Limit))
	return i
}

// ttl returns how long an event of the log must live. A store cuts times to live
// to whole seconds and counts them by its nodes' clocks, hence the two terms at
// the end; the event is dated before it is written, hence the timeout.
func (log *logPlan) ttl(o *Options) time.Duration {
	return wholeSeconds(log.window+o.StoreTimeout) + time.Second + o.ClockError
}

// logWritesFor returns the logs that own's events are appended to.
func (p *plan) logWritesFor(own *units, o *Options) []LogWrite {
	if hold := own.batch[0].hold; hold > 0 { // a request that holds travels alone
		return p.holdWrites(hold, o)
	}
	return p.logWrites
}

// holdWrites returns p's logs for events that are held: they live no longer than they
// may count, until their end by the slowest clock.
func (p *plan) holdWrites(hold time.Duration, o *Options) []LogWrite {
	writes := slices.Clone(p.logWrites)
	for i := range writes {
		writes[i].TTL = min(writes[i].TTL, o.holdTTL(hold))
	}
	return writes
}

// holdTTL returns how long the row of a hold must live.
func (o *Options) holdTTL(hold time.Duration) time.Duration {
	return wholeSeconds(hold+2*o.ClockTolerance+o.StoreTimeout) + time.Second + o.ClockError
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
		logs = append(logs, LogQuery{Span: log.span, After: now - log.counts, Max: log.limit + own})
	}
	return Query{
		Key: key, Level: p.Consistency.Read, Logs: logs, Counts: p.counters && !p.serial && !p.tally,
		Tally: p.tally, Span: p.span, Cell: p.cell, ExpireAfter: now,
	}
}

// queryAgain makes q, which was a query of p for somebody, one for key at now.
func (p *plan) queryAgain(q *Query, key Key, now Instant) {
	q.Key, q.ExpireAfter = key, now
	for i := range q.Logs {
		q.Logs[i].After = now - p.logs[i].counts
	}
}

// decide fills in d: it judges cost at now under all of p's rules and, if it is to
// count, adds it to s. The decision's Recorded says whether it did. The same steps are
// exclusive.judge's, which makes an id only for what counts.
func (p *plan) decide(d *Decision, s *State, op Op, id EventID, now Instant, cost int64) {
	fits := p.weigh(d, s, now, cost)
	counts := p.records(op, fits)
	if counts {
		p.count(s, id, now, cost)
	}
	p.judge(d, s, op, now, cost, fits, counts)
}

// weigh makes d a decision that knows what is used, and whether cost fits beside it, and
// reports whether it does under all rules.
func (p *plan) weigh(d *Decision, s *State, now Instant, cost int64) (fits bool) {
	fits = true
	for i, limits := 0, p.begin(d); i < len(limits); i++ {
		r, l := &p.rules[i], &limits[i]
		l.Used = r.algorithm.used(r, s, now)
		l.Allowed = r.fits(l.Used, cost)
		fits = fits && l.Allowed
	}
	return fits
}

// records reports whether op is counted where it fits under all rules, or where it does not.
func (p *plan) records(op Op, fits bool) bool {
	return op != OpCheck && (fits || op == OpRecord || p.Count == CountAll && op == OpTake)
}

// judge completes d, by whose limits cost fits or not. If it counts, s includes it already.
func (p *plan) judge(d *Decision, s *State, op Op, now Instant, cost int64, fits, counts bool) {
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
			p.rules[i].judge(v, s, now, cost, v.Used)
		}
	}
	d.conclude()
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
func (p *plan) judgeAfter(d *Decision, s *State, op Op, now Instant, cost int64) {
	limits := d.Limits()
	for i := range limits {
		r, v := &p.rules[i], &limits[i].Verdict
		allowed := v.Allowed || op == OpRecord
		r.judge(v, s, now, cost, r.algorithm.used(r, s, now))
		v.Allowed = allowed
	}
}

// count adds a request of cost at now to s.
func (p *plan) count(s *State, id EventID, now Instant, cost int64) {
	for i := range s.Logs {
		s.Logs[i].insert(Event{ID: id, At: now, Cost: cost})
	}
	for i := range p.rules {
		switch r := &p.rules[i]; r.algorithm.memory {
		case memoryCounters:
			s.add(r.countOf(s.Reset, now, cost))
		case memoryCells:
			r.pour(s, now, cost)
		}
	}
}

// giveBack takes what e counted out of s's counters and buckets, as far as they are
// in a cell.
func (p *plan) giveBack(s *State, e *entry, now Instant) {
	for i := range p.rules {
		switch r := &p.rules[i]; {
		case r.algorithm.memory == memoryCells:
			r.scoop(s, now, e.poured(now, s.Reset), e.cost)
		case r.algorithm.memory == memoryCounters && p.serial && e.epoch == s.Reset:
			s.add(r.countOf(e.epoch, e.at, -e.cost))
		}
	}
}

// countOf returns units as they are added to now's counter under epoch.
func (r *rule) countOf(epoch, now Instant, units int64) Count {
	start, end := r.windowAt(now)
	return Count{Limit: r.id, Start: start, Expires: end.Add(r.lasts - r.width), Epoch: epoch, Units: units}
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
