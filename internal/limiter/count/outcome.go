package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

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
