package limiter

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// If only derived conversions deny a call, it is tried again without them, under the demands that its policies derive for
// that case: for each part of the identifier that is known, one after the other, or, if no part is known, those for a new
// caller. Only one try counts and is observed: the one that passes or fails, or else the first.

// try says which derivations count in a try. The zero try is the first one.
type try struct {
	when  policy.When
	known store.Key // the key of the known part of this try
}

// counts reports whether a derivation of p with this when applies in the try.
func (in try) counts(p *demand.Plan, when policy.When) bool {
	if when == "" {
		return in.when == "" || !p.Converts()
	}
	return when == in.when
}

// haveFallback reports whether one of the policies of charges has derivations for calls that conversions deny.
func haveFallback(charges []demand.Charge) bool {
	return slices.ContainsFunc(charges, func(c demand.Charge) bool { return c.Plan.HasFallback })
}

// allowed reports whether all of charges are allowed.
func allowed(charges []demand.Charge) bool {
	return !slices.ContainsFunc(charges, func(c demand.Charge) bool { return !c.Decision.Allowed })
}

// conversionsDeny reports whether only derived conversions deny charges. The first charges, as many as demands, are those of
// the call's own demands.
func conversionsDeny(charges []demand.Charge, demands int) (denied bool) {
	for i := range charges {
		c := &charges[i]
		if c.Decision.Stands() {
			continue
		}
		d := &c.Decision
		if i < demands || !c.Plan.Converts() || d.Blocked || d.Degraded || d.Override != "" || d.Reason != "" {
			return false
		}
		denied = true
	}
	return denied
}

// tryInstead decides call again, by decide, if the first try did not fail and only derived conversions denied its charges,
// first. It returns the charges of the try that passes or fails, or else first, and calls the observers with them.
func (e *Engine) tryInstead(
	ctx context.Context, first []demand.Charge, failed error, call *Call, decide func(try) (tried []demand.Charge, passes bool, err error),
) ([]demand.Charge, error) {
	last := first
	if failed == nil && conversionsDeny(first, len(call.Demands)) {
		for _, in := range e.tries(ctx, first) {
			tried, passes, err := decide(in)
			if failed = err; err != nil && tried == nil {
				break
			}
			if passes || err != nil {
				last = tried
				e.tellRelented(first)
				break
			}
		}
	}
	told := make([]demand.Charge, 0, len(last))
	for i := range last {
		if c := &last[i]; c.Decision.Policy != nil { // a charge without a policy was not decided
			c.Quiet = false
			told = append(told, *c)
		}
	}
	e.judge.Tell(told)
	return last, failed
}

// tellRelented calls Observer.Relented with the conversions that denied charges, because Observer.Decided is not called with them.
func (e *Engine) tellRelented(charges []demand.Charge) {
	for i := range charges {
		if c := &charges[i]; e.relented != nil && !c.Decision.Stands() {
			e.relented(c.Key, &c.Decision)
		}
	}
}

// tries returns the further tries of a call whose charges only conversions deny.
func (e *Engine) tries(ctx context.Context, charges []demand.Charge) (all []try) {
	var marks []demand.Mark
	for i := range charges {
		marks = append(marks, charges[i].Marks...)
	}
	for i, known := range e.marks.Known(ctx, marks) {
		if known {
			all = append(all, try{policy.WhenKnown, marks[i].Key})
		}
	}
	if len(all) > 0 {
		return all
	}
	return []try{{when: policy.WhenDenied}}
}

// doByClaim is Do for a call with an idempotency key or a reservation.
func (e *Engine) doByClaim(ctx context.Context, call *Call) (Answer, error) {
	charges, err := e.charger.charges(nil, call, try{})
	if err != nil {
		return Answer{}, err
	}
	if call.Reservation != "" && haveFallback(charges) {
		if charges, err = e.heldCharges(ctx, charges, call); err != nil {
			return Answer{}, err
		}
	}
	answer, err := e.byClaim(ctx, call, charges)
	if !haveFallback(charges) || call.Reservation != "" || answer.Replayed {
		return answer, err
	}
	_, err = e.tryInstead(ctx, charges, err, call, func(in try) ([]demand.Charge, bool, error) {
		charges, err := e.charger.charges(nil, call, in)
		if err != nil {
			return nil, false, err
		}
		tried, err := e.byClaim(ctx, call, charges)
		if err == nil && !tried.Allowed {
			return charges, false, nil
		}
		answer = tried
		return charges, err == nil, err
	})
	return answer, err
}

// heldCharges returns the charges of call in the try in which its reservation was made, or those of the first try if no try
// fits.
func (e *Engine) heldCharges(ctx context.Context, first []demand.Charge, call *Call) ([]demand.Charge, error) {
	tries := []try{{when: policy.WhenDenied}}
	for i := range first {
		first[i].Quiet = false
		for _, m := range first[i].Marks {
			tries = append(tries, try{policy.WhenKnown, m.Key})
		}
	}
	if e.reservations.isOf(ctx, call, first) {
		return first, nil
	}
	for _, in := range tries {
		charges, err := e.charger.charges(nil, call, in)
		if err != nil {
			return nil, err
		}
		for i := range charges {
			charges[i].Quiet = false
		}
		if e.reservations.isOf(ctx, call, charges) {
			return charges, nil
		}
	}
	return first, nil
}
