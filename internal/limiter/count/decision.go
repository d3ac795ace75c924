package count

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Verdict is the answer of one limit for one state at one instant.
type Verdict struct {
	Allowed    bool          // the cost fits
	Used       int64         // units; exact up to the limit, past it a lower bound
	Remaining  int64         // units that could be spent at once; never negative
	ResetAfter time.Duration // until nothing is used
	RetryAfter time.Duration // until the same cost fits if no other call comes; 0 if it fits now, Never if no wait helps
}

// LimitDecision is the verdict of one of a policy's limits. The verdict of a limit in shadow changes no decision: if
// Allowed is false, the limit would deny.
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

// With returns the Recorded of two demands together: unknown if either is, else yes if either counts, else no.
func (r Recorded) With(other Recorded) Recorded {
	for _, either := range []Recorded{RecordedUnknown, RecordedYes} {
		if r == either || other == either {
			return either
		}
	}
	return RecordedNo
}

// WouldDeny reports whether l is the verdict of a limit in shadow that would deny if it were enforced.
func (l *LimitDecision) WouldDeny() bool { return l.Limit.Shadow && !l.Allowed }

// Decision is the answer to one demand. Its own Verdict is that of the tightest enforced limit: the denying one with the
// longest wait, or else the one with the smallest share remaining. Used and Remaining are after the operation.
type Decision struct {
	Policy *policy.Policy // with defaults filled in; not to be changed
	Verdict
	Tightest   int                 // index into Limits of the limit that has this Verdict
	WouldAllow bool                // the verdict, before the mode is applied
	Degraded   bool                // the store did not answer; the policy's OnStoreError decided
	Blocked    bool                // a block decided, and no counts were read: Used and Remaining are the limit and 0
	Override   policy.OverrideKind // the kind of override that replaced the policy's rules; empty: no override
	Reason     policy.Reason       // the rule about numbers that denies in any mode, without reading counts; empty: none denies
	Remembered bool                // a denial from memory, by an earlier read of the store
	Recorded   Recorded            // whether the units count now

	Entry   Entry            // the counted units, if Recorded is RecordedYes
	only    [1]LimitDecision // of a policy with one limit, as most are, so that d needs no other memory
	several []LimitDecision  // of a policy with several limits
}

// Limits returns the verdicts of the policy's limits, in its order; none for the zero Decision. They are d's own
// memory.
func (d *Decision) Limits() []LimitDecision {
	if d.only[0].Limit != nil {
		return d.only[:]
	}
	return d.several
}

// SetLimits sets d's limits, each of which has its Limit: for decisions that are decoded, and for tests.
func (d *Decision) SetLimits(limits []LimitDecision) {
	d.only[0], d.several = LimitDecision{}, limits
	if len(limits) == 1 {
		d.only[0], d.several = limits[0], nil
	}
}

// TightestLimit returns the limit that has the decision's own Verdict.
func (d *Decision) TightestLimit() *policy.Limit { return d.Limits()[d.Tightest].Limit }

// Stands reports whether d permits its call under its policy's mode.
func (d *Decision) Stands() bool { return d.WouldAllow || d.Policy.Mode != policy.ModeEnforce }

// IsTighter reports whether a call with both decisions should report d rather than other.
func (d *Decision) IsTighter(other *Decision) bool {
	return tighter(&LimitDecision{d.TightestLimit(), d.Verdict}, &LimitDecision{other.TightestLimit(), other.Verdict})
}

// Never is the RetryAfter of a denial that no wait would end.
const Never time.Duration = -1

// Postpone adds ahead to all waits, if it is above 0. ahead is the time by which the decision's instant was later than the
// clock: right after a reset that another instance gave a later time, the instant is later than that.
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

// Outlast makes a denial's waits at least rest, the length of the block that begins with it.
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

// ForgetUsed sets the used units of all limits to 0, as they were not read.
func (d *Decision) ForgetUsed() {
	for i := range d.Limits() {
		d.Limits()[i].Used = 0
	}
	d.Used = 0
}

// Entry has the units that a decision counted for a target. With the target, it has everything that a refund needs.
type Entry struct {
	ID    store.EventID
	At    store.Instant
	Epoch store.Instant // the reset after which it was counted
	Cost  int64
	Held  time.Duration // the length of the hold of a reservation that has ended; 0: no such hold
	Kept  int64         // units of its event that stay when Cost others are given back; 0: the whole event is removed

	Confirmed bool          // a confirmation: only limits with until: confirmed give the units back, and conversions record it
	Repeats   bool          // another confirmation of the same number counts already: conversions do not record it
	Claimed   store.Instant // when its receipt was first returned; 0: no receipt gives it back
	Again     bool          // the receipt was returned before: only steps without an effect when repeated are done
}

// addedAt returns when e's units were added to a bucket. If a clock that has since been set back dated them, it can
// compute that only for held units, and only if no reset may have come between.
func (e *Entry) addedAt(now, reset store.Instant) store.Instant {
	if e.At > now && e.Held > 0 && e.Epoch == reset {
		return now.Add(-e.Held)
	}
	return e.At
}

// Outcome is the result of a decision.
type Outcome int

// The outcomes of decisions.
const (
	OutcomeAllowed Outcome = iota
	OutcomeDenied
	OutcomeBlocked         // denied by a block that an earlier denial caused: counts were not read
	OutcomeRefused         // denied by a rule about numbers: counts were not read
	OutcomeWouldDeny       // allowed, but denied if the policy or a limit in shadow were enforced
	OutcomeOff             // mode off: counts were not read
	OutcomeDegradedAllowed // the store did not answer, and on_store_error allowed
	OutcomeDegradedDenied  // the store did not answer, and on_store_error denied

	OutcomeCount // number of outcomes
)

// String returns the outcome's name in metrics and traces.
func (o Outcome) String() string {
	return [OutcomeCount]string{
		"allowed", "denied", "blocked", "refused", "would_deny", "off", "degraded_allowed", "degraded_denied",
	}[o]
}

// Outcome returns the outcome of d, and the index into its Limits of the limit that is the reason: the tightest one, or
// the first one in shadow that would deny an allowed call.
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

// enforced returns the outcome of d without regard to shadow limits.
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

// FateOf returns whether units count after a write that failed with err.
func FateOf(err error) Recorded {
	if errors.Is(err, store.ErrNotStored) {
		return RecordedNo
	}
	return RecordedUnknown
}

// StoreError is the error of a decision that the store's failure prevented, under a policy with on_store_error: deny. It
// wraps store.ErrUnavailable or store.ErrOverloaded.
type StoreError struct {
	Recorded Recorded // whether the units count all the same
	Err      error    // the store's error
}

// Error returns the store's error, and whether the units count.
func (e *StoreError) Error() string {
	return fmt.Sprintf("deciding (recorded: %s): %v", e.Recorded, e.Err)
}

// Unwrap returns the store's error.
func (e *StoreError) Unwrap() error { return e.Err }
