package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Never is the RetryAfter of a denial that no wait would end.
const Never time.Duration = -1

// Verdict is what one limit says of one state at one instant.
type Verdict struct {
	Allowed    bool          // the cost fits
	Used       int64         // units; exact up to the limit, past it a lower bound
	Remaining  int64         // units that could be spent at once; never negative
	ResetAfter time.Duration // until the limit is whole again
	RetryAfter time.Duration // until the same cost fits if nobody else comes; 0 when it fits, Never when no wait helps
}

// LimitDecision is the verdict of one of a policy's limits. That of a shadow changes no decision: a cost that does not
// fit is one that it would deny.
type LimitDecision struct {
	Limit *policy.Limit // of the policy that decided; not to be changed
	Verdict
}

// Recorded says whether a request's units were counted.
type Recorded string

// The values of Recorded.
const (
	RecordedYes     Recorded = "yes"
	RecordedNo      Recorded = "no"
	RecordedUnknown Recorded = "unknown" // the store did not answer: they may be counted or not
)

// WouldDeny reports whether l is a shadow, which denies nothing and would deny this.
func (l *LimitDecision) WouldDeny() bool { return l.Limit.Shadow && !l.Allowed }

// Decision is the answer to one demand. Its own Verdict is that of the tightest
// limit that is no shadow: the denying one with the longest wait, else the one with the smallest
// share remaining. Used and Remaining are after the operation.
type Decision struct {
	Policy *policy.Policy // with defaults filled in; not to be changed
	Verdict
	Tightest   int                 // index into Limits of the limit that the Verdict is of
	WouldAllow bool                // the verdict, whatever the mode made of it
	Degraded   bool                // the store did not answer; OnStoreError decided
	Blocked    bool                // a block decided, and nobody was asked: Used and Remaining are the limit and 0
	Override   policy.OverrideKind // by which it was decided otherwise than the policy says; empty: there is none
	Reason     policy.Reason       // the rule about numbers that denies, whatever the mode; nobody was asked. Empty: none does
	Remembered bool                // a denial by what was read before: the store was not asked
	Recorded   Recorded            // whether the units count now

	Entry   Entry            // what was counted, if Recorded is RecordedYes
	only    [1]LimitDecision // of a policy with one limit: most have one, and need no memory beside d's own
	several []LimitDecision  // of one with several
}

// Limits returns the verdicts of the policy's limits, in its order; none for the zero
// Decision. They are d's own.
func (d *Decision) Limits() []LimitDecision {
	if d.only[0].Limit != nil {
		return d.only[:]
	}
	return d.several
}

// SetLimits makes limits, each with its Limit, those of d: for what is read back, and for
// tests.
func (d *Decision) SetLimits(limits []LimitDecision) {
	d.only[0], d.several = LimitDecision{}, limits
	if len(limits) == 1 {
		d.only[0], d.several = limits[0], nil
	}
}

// TightestLimit returns the limit that the decision's own Verdict is of.
func (d *Decision) TightestLimit() *policy.Limit { return d.Limits()[d.Tightest].Limit }

// Decide fills in d, whatever it was: it judges cost at now under all of p's rules and, if it is to
// count, adds it to s, under id. The decision's Recorded says whether it did.
func (p *Plan) Decide(d *Decision, s *store.State, op Op, id store.EventID, now store.Instant, cost int64) {
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
		cost = 0 // else it has to fit beside itself: a denied attempt that counts has to wait for itself, too
	}
	for i := range limits { // whether it was allowed stays: the rest is told of the state that includes it
		r, v := &p.Rules[i], &limits[i].Verdict
		allowed := v.Allowed || op == OpRecord
		r.judge(v, s, now, cost, r.algorithm.used(r, s, now))
		v.Allowed = allowed
	}
	d.Conclude()
	if passes {
		return
	}
	for i := range limits { // who let it pass has nobody wait, though the next may have to: d itself tells that
		if v := &limits[i].Verdict; v.Allowed {
			v.RetryAfter = 0
		}
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

// judge fills in v: whether cost fits into r at now beside what is used, and where that
// leaves the caller. A cost of 0 asks only for the latter. Nobody waits for a shadow.
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

// fits reports whether r has room at now for cost beside what is used, or lets it pass as a probe.
func (r *Rule) fits(s *store.State, now store.Instant, used, cost int64) bool {
	return cost == 0 || store.AddSaturating(used, cost) <= r.Capacity ||
		cost == 1 && r.algorithm.probe != nil && r.algorithm.probe(r, s, now) == 0
}

// waitFor returns how long after now a cost that does not fit will, or may pass as a probe.
func (r *Rule) waitFor(s *store.State, now store.Instant, cost int64) time.Duration {
	wait := r.algorithm.wait(r, s, now, cost)
	if cost == 1 && r.algorithm.probe != nil {
		wait = min(wait, r.algorithm.probe(r, s, now))
	}
	return wait
}

// Add adds a request of cost at now to s.
func (p *Plan) Add(s *store.State, id store.EventID, now store.Instant, cost int64) {
	for i := range s.Logs {
		s.Logs[i].Insert(store.Event{ID: id, At: now, Cost: cost})
	}
	for i := range p.Rules {
		switch r := &p.Rules[i]; r.Kind.Memory {
		case policy.MemoryCounters:
			s.Add(r.CountOf(s.Reset, now, cost))
		case policy.MemoryCells:
			r.algorithm.pour(r, s, now, cost)
		}
	}
}

// IsTighter reports whether d stands before other as the decision of several to tell of.
func (d *Decision) IsTighter(other *Decision) bool {
	return tighter(&LimitDecision{d.TightestLimit(), d.Verdict}, &LimitDecision{other.TightestLimit(), other.Verdict})
}

// Conclude fills in d's own verdict from those of its limits.
func (d *Decision) Conclude() {
	tightest := &d.only[0]
	if d.Tightest, d.Verdict = 0, tightest.Verdict; tightest.Limit == nil {
		tightest = d.concludeSeveral()
	}
	if tightest.Limit.Shadow { // a part of a policy: what may deny is in another one
		d.Allowed, d.RetryAfter = true, 0
	}
	d.WouldAllow = d.Allowed
	if d.Policy.Mode != policy.ModeEnforce {
		d.Allowed = true
	}
}

// concludeSeveral fills in which of several limits is the tightest, and its verdict, and returns it.
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

// Postpone adds to all waits by how much the instant of the decision was ahead of
// the clock: it is after a reset that another instance dated later. It does nothing
// if that is not above 0.
func (d *Decision) Postpone(ahead time.Duration) {
	if ahead <= 0 {
		return
	}
	d.postpone(ahead)
	limits := d.Limits()
	for i := range limits {
		limits[i].postpone(ahead)
	}
}

func (v *Verdict) postpone(ahead time.Duration) {
	if v.RetryAfter > 0 {
		v.RetryAfter += ahead
	}
	if v.ResetAfter > 0 {
		v.ResetAfter += ahead
	}
}

// tighter reports whether a stands before b as the limit to tell of. A shadow stands behind all others.
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

// Outlast makes a denial's waits no shorter than a block that it is followed by.
func (d *Decision) Outlast(rest time.Duration) {
	d.outlast(rest)
	for i := range d.Limits() {
		d.Limits()[i].outlast(rest)
	}
}

func (v *Verdict) outlast(rest time.Duration) {
	if v.Allowed {
		return
	}
	v.ResetAfter = max(v.ResetAfter, rest)
	if v.RetryAfter != Never {
		v.RetryAfter = max(v.RetryAfter, rest)
	}
}

// ForgetUsed says of no limit how much of it is used: nobody has looked.
func (d *Decision) ForgetUsed() {
	for i := range d.Limits() {
		d.Limits()[i].Used = 0
	}
	d.Used = 0
}
