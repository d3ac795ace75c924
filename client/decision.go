package client

import (
	"math"
	"time"
)

// Never is the RetryAfter of a denial that no wait would change. It is longer than any wait.
const Never = time.Duration(math.MaxInt64)

// Mode is how a policy is applied.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow" // decides and reports, always allows
	ModeOff     Mode = "off"
)

// Override is the kind of an administrator's exception for an identifier, for a while.
type Override string

// The overrides.
const (
	OverrideAllow  Override = "allow"  // everything is allowed, and nothing is counted
	OverrideBlock  Override = "block"  // everything is denied; counts are not looked at, and Used is 0
	OverrideLimits Override = "limits" // other limits are in force
)

// Reason is a rule of a policy about phone numbers, which denies without looking at counts.
type Reason string

// The reasons.
const (
	ReasonCountry    Reason = "country"     // it admits no numbers of the number's country
	ReasonNumberType Reason = "number_type" // it admits no numbers of its type, such as premium_rate
)

// Recorded says whether the units of a call count.
type Recorded string

// The values of Recorded. If it is empty, the decision tells: units of a take or record that is allowed count, and no
// others.
const (
	RecordedYes     Recorded = "yes"
	RecordedNo      Recorded = "no"
	RecordedUnknown Recorded = "unknown"
)

// Decision is the service's answer to a call. With several demands it describes the tightest limit, except that
// Allowed, WouldAllow, RetryAfter and Degraded are those of all.
type Decision struct {
	Allowed    bool
	WouldAllow bool // the verdict: that of Allowed, but for a policy in mode shadow
	Policy     string
	Limit      int64         // of the tightest limit, as are Remaining, Used and ResetAfter
	Remaining  int64         // units that could be spent at once, after this call
	Used       int64         // after this call: exact up to the limit, past it a lower bound
	ResetAfter time.Duration // until the limit is whole again
	RetryAfter time.Duration // until the same call passes if nobody else comes: 0 when allowed, Never when no wait helps
	Limits     []LimitDecision
	Mode       Mode
	Override   Override // the override that decided; empty: none did
	Blocked    bool     // a block decided: one after an earlier denial, or by an override
	Reason     Reason   // the policy's rule about numbers that denies; empty: none does
	Degraded   bool     // the store, or the service, did not answer: something else decided
	Recorded   Recorded // of a degraded decision, and otherwise empty
	Settled    int64    // units that a settled reservation counts; of several demands, each of Demands has its own
	Over       int64    // of these, the units that the reservation did not hold: they count whatever the limit

	Receipt     string     // refunds the recorded units, once; empty: none were recorded
	Release     string     // the receipt of units under concurrent limits, to be refunded when the request ends; empty: there are none
	Reservation string     // by which a record settles the units that a check holds; empty: it holds none
	Replayed    bool       // it is the recorded answer to an earlier call with the same idempotency key
	Demands     []Decision // one for each of several demands, in their order; nil: there was one
}

// LimitDecision is the decision of one limit of a policy.
type LimitDecision struct {
	Name       string
	Algorithm  string
	Limit      int64
	Window     time.Duration
	Allowed    bool
	Used       int64
	Remaining  int64
	ResetAfter time.Duration
	RetryAfter time.Duration // Never when no wait helps
	Shadow     bool          // it denies nothing; WouldDeny reports what it would deny
	WouldDeny  bool
}
