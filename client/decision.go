package client

import (
	"math"
	"time"
)

// Never is the RetryAfter of a denial that no wait changes. It exceeds every wait.
const Never = time.Duration(math.MaxInt64)

// Mode is how a policy is applied.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow" // decides and reports, always allows
	ModeOff     Mode = "off"
)

// Override is the kind of an administrator's temporary exception for an identifier.
type Override string

// The overrides.
const (
	OverrideAllow  Override = "allow"  // everything is allowed, and nothing is counted
	OverrideBlock  Override = "block"  // everything is denied; counts are not read, and Used is 0
	OverrideLimits Override = "limits" // other limits are in force
)

// Reason is a policy's rule about phone numbers that denies without reading counts.
type Reason string

// The reasons.
const (
	ReasonCountry    Reason = "country"     // the policy admits no numbers of this country
	ReasonNumberType Reason = "number_type" // the policy admits no numbers of this type, such as premium_rate
)

// Recorded says whether the units of a call count.
type Recorded string

// The values of Recorded. If it is empty, the decision tells: the units of an allowed take or record count, and no
// others.
const (
	RecordedYes     Recorded = "yes"
	RecordedNo      Recorded = "no"
	RecordedUnknown Recorded = "unknown"
)

// Decision is the service's answer to a call. With several demands it describes the tightest limit, but Allowed,
// WouldAllow, RetryAfter and Degraded are about all demands.
type Decision struct {
	Allowed    bool
	WouldAllow bool // the verdict: Allowed, unless the policy is in mode shadow
	Policy     string
	Limit      int64         // of the tightest limit, like Remaining, Used and ResetAfter
	Remaining  int64         // units that can be spent now, after this call
	Used       int64         // units after this call: exact up to the limit, a lower bound beyond it
	ResetAfter time.Duration // until all units of the limit are free
	RetryAfter time.Duration // until the same call would pass without other calls: 0 when allowed, Never when no wait helps
	Limits     []LimitDecision
	Mode       Mode
	Override   Override // the override that decided; empty: none
	Blocked    bool     // a block decided, after an earlier denial or by an override
	Reason     Reason   // the policy's rule about numbers that denies; empty: none
	Degraded   bool     // the store or the service did not answer, and on_store_error or FailOpen decided
	Recorded   Recorded // set only if Degraded
	Settled    int64    // units of a settled reservation that count; with several demands, in each of Demands
	Over       int64    // units of Settled that the reservation did not hold; they count whatever the limit

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
