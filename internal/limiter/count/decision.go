package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
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

// IsTighter reports whether d stands before other as the decision of several to tell of.
func (d *Decision) IsTighter(other *Decision) bool {
	return tighter(&LimitDecision{d.TightestLimit(), d.Verdict}, &LimitDecision{other.TightestLimit(), other.Verdict})
}

// Conclude fills in d's own verdict from those of its limits.
func (d *Decision) Conclude() {
	if d.only[0].Limit != nil {
		d.Tightest, d.Verdict = 0, d.only[0].Verdict
	} else {
		d.concludeSeveral()
	}
	if d.TightestLimit().Shadow { // a part of a policy: what may deny is in another one
		d.Allowed, d.RetryAfter = true, 0
	}
	d.WouldAllow = d.Allowed
	if d.Policy.Mode != policy.ModeEnforce {
		d.Allowed = true
	}
}

// concludeSeveral fills in which of several limits is the tightest, and its verdict.
func (d *Decision) concludeSeveral() {
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
