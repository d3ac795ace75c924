package count

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

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
	Degraded   bool                // the store did not answer; the policy's OnStoreError decided
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

// Stands reports whether d, under its policy's mode, lets the call that it is a part
// of pass.
func (d *Decision) Stands() bool { return d.WouldAllow || d.Policy.Mode != policy.ModeEnforce }

// IsTighter reports whether d stands before other as the decision of several to tell of.
func (d *Decision) IsTighter(other *Decision) bool {
	return tighter(&LimitDecision{d.TightestLimit(), d.Verdict}, &LimitDecision{other.TightestLimit(), other.Verdict})
}

// Never is the RetryAfter of a denial that no wait would end.
const Never time.Duration = -1

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

// Entry is what was counted for a target: what it takes beside that to give it back.
type Entry struct {
	ID    store.EventID
	At    store.Instant
	Epoch store.Instant // the reset that it was counted under
	Cost  int64
	Held  time.Duration // for how long it was, of a reservation that is over; else 0

	Confirmed bool          // it stays where it counts: only limits until: confirmed give it back, and conversions are told
	Repeats   bool          // another confirmation of the same number counts: conversions are not told
	Claimed   store.Instant // when its receipt first came back; 0: it is not given back by a receipt
	Again     bool          // it came back before: only what can't be done twice is to be done
}

// poured returns when e's units were poured into a bucket. If that was by a clock that was set back
// since, it is known of what was held, unless a reset may have come between.
func (e *Entry) poured(now, reset store.Instant) store.Instant {
	if e.At > now && e.Held > 0 && e.Epoch == reset {
		return now.Add(-e.Held)
	}
	return e.At
}

// Outcome is what became of a decision.
type Outcome int

// The outcomes of decisions.
const (
	OutcomeAllowed Outcome = iota
	OutcomeDenied
	OutcomeBlocked         // denied by a block that an earlier denial caused: nobody was asked
	OutcomeRefused         // denied by a rule about numbers: nobody was asked
	OutcomeWouldDeny       // allowed, and denied if the policy or a limit were no shadow
	OutcomeOff             // mode off: nobody was asked
	OutcomeDegradedAllowed // the store did not answer, and on_store_error allowed
	OutcomeDegradedDenied  // the store did not answer, and on_store_error denied

	OutcomeCount // how many there are
)

// String returns the outcome as metrics and traces have it.
func (o Outcome) String() string {
	return [OutcomeCount]string{
		"allowed", "denied", "blocked", "refused", "would_deny", "off", "degraded_allowed", "degraded_denied",
	}[o]
}

// Outcome returns what became of d, and the index into its Limits of the one because of which: the tightest, or the first
// shadow that would deny what was allowed.
func (d *Decision) Outcome() (o Outcome, limit int) {
	if o = d.enforced(); o == OutcomeAllowed {
		for i := range d.Limits() {
			if d.Limits()[i].WouldDeny() {
				return OutcomeWouldDeny, i
			}
		}
	}
	return o, d.Tightest
}

// enforced returns what became of d, whatever shadows say.
func (d *Decision) enforced() Outcome {
	switch {
	case d.Policy.Mode == policy.ModeOff:
		return OutcomeOff
	case d.Degraded && d.Allowed:
		return OutcomeDegradedAllowed
	case d.Degraded:
		return OutcomeDegradedDenied
	case d.Blocked:
		return OutcomeBlocked
	case !d.Allowed && d.Reason != "":
		return OutcomeRefused
	case !d.Allowed:
		return OutcomeDenied
	case !d.WouldAllow:
		return OutcomeWouldDeny
	}
	return OutcomeAllowed
}

// FateOf says what became of a write that failed with err.
func FateOf(err error) Recorded {
	if errors.Is(err, store.ErrNotStored) {
		return RecordedNo
	}
	return RecordedUnknown
}

// StoreError is a decision that the store's failure prevented, under a policy
// whose on_store_error says deny. It wraps store.ErrUnavailable or store.ErrOverloaded.
type StoreError struct {
	Recorded Recorded // whether the units count all the same
	Err      error    // what the store said
}

// Error says what the store said, and what became of the units.
func (e *StoreError) Error() string {
	return fmt.Sprintf("deciding (recorded: %s): %v", e.Recorded, e.Err)
}

// Unwrap returns what the store said.
func (e *StoreError) Unwrap() error { return e.Err }
