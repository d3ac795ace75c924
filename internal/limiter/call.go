package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Call is one request of a caller: demands that stand or fall together.
type Call struct {
	Op      count.Op
	Demands []Demand // 1 to MaxDemands, no policy and identifier twice

	// IdempotencyKey makes OpTake and OpRecord count once, however often the same call
	// comes with the same key: 1 to MaxIdempotencyKeyLen bytes; empty: none.
	IdempotencyKey string
	// Caller is whose key that is: what another caller sends under the same key is another
	// call. Empty: of all who have no name.
	Caller string
	// Reserve makes OpCheck hold what it allows, for MinReserve to MaxReserve in whole
	// milliseconds; 0: nothing is held.
	Reserve time.Duration
	// Reservation is what an earlier check answered, for OpRecord to settle; empty: none.
	// Demands are those of that check then, each at what it cost, or none.
	Reservation string
	// Cost is what each demand of the Reservation cost, where Demands are none: 1 to MaxCost units, or CostNothing;
	// 0: as many as are held.
	Cost int64
}

// Bounds of a Call.
const (
	MaxIdempotencyKeyLen = 255
)

// Answer is what became of a Call. Its own Decision is the demand's or, of several,
// the tightest one's, with Allowed, WouldAllow and the waits for all of them.
type Answer struct {
	count.Decision
	Demands     []count.Decision // one for each demand, in their order, and then those derived; nil for one in all
	Receipt     string           // by which what was recorded can be refunded once; empty: nothing was
	Reservation string           // by which what is held can be settled; empty: nothing is
	Settled     []Settled        // what settling a reservation came to, one for each decision; nil: none was settled
	Replayed    bool             // it is the recorded answer to an earlier call with the same idempotency key
}

// Do decides call. It is Check, Record or Take for one demand and more.
//
// Errors are those of Take, ErrReused and, each as a FieldError, those of the call itself;
// fields of a demand among several are called "demands[1].cost". The answer means
// nothing then, except beside a StoreError.
func (e *Engine) Do(ctx context.Context, call *Call) (Answer, error) {
	if call.byClaim() {
		return e.doByClaim(ctx, call)
	}
	one, _ := e.borrowed.Get().(*single)
	defer e.borrowed.Put(one)
	if !e.secrets.Known() { // the receipt may take a request of its own, out of the same time
		limited, cancel := context.WithTimeout(ctx, e.settings.StoreTimeout)
		defer cancel()
		ctx = limited
	}
	charges, err := decideByOneVersion(ctx, e.charger, e.judge, one, call, try{})
	if charges == nil {
		return Answer{}, err
	}
	if relent(charges) {
		charges, err = e.tryInstead(ctx, charges, err, call, func(in try) ([]demand.Charge, bool, error) {
			tried, err := decideByOneVersion(ctx, e.charger, e.judge, new(single), call, in)
			return tried, err == nil && allowed(tried), err
		})
	}
	answer := answerOf(charges)
	if err == nil {
		answer.Receipt = e.refunds.receipt(ctx, charges)
	}
	return answer, err
}

// byClaim reports whether c may come again, holds something or settles it.
func (c *Call) byClaim() bool { return c.IdempotencyKey != "" || c.Reserve > 0 || c.Reservation != "" }

// charges returns what call asks for, made ready to decide, in place of charges: its own
// demands, and then those that their policies derive. All are under one version of the policies.
func (m *charger) charges(charges []demand.Charge, call *Call, in try) ([]demand.Charge, error) {
	if err := call.check(); err != nil {
		return nil, err
	}
	charges = slices.Grow(charges, len(call.Demands))[:len(call.Demands)]
	set := m.plans.inForce.Load()
	var more []derived
	for i := range call.Demands {
		c := &charges[i]
		d := call.Demands[i]
		unused := d.Cost == CostNothing && call.Reservation != ""
		if unused {
			d.Cost = 1
		}
		parts, err := m.charge(set, c, call.Op, &d)
		if unused {
			c.Cost = 0
		}
		if err == nil && parts != nil {
			more, err = deriveFrom(c, more, i, parts, in)
		}
		if err != nil {
			return nil, call.inDemand(i, err)
		}
		if j := indexOf(charges[:i], c.Key); j >= 0 {
			return nil, &FieldError{
				Field:  fmt.Sprintf("demands[%d]", i),
				Detail: fmt.Sprintf("the same policy and identifier as demands[%d]: give one demand the sum of both costs", j),
			}
		}
	}
	if relent(charges) {
		for i := range charges {
			charges[i].Quiet = true
		}
		for i := range more {
			more[i].Quiet = true
		}
	}
	if more != nil {
		for i := range more {
			if m.overrides.Live.Load() > 0 {
				m.override(&more[i].Charge, more[i].id)
			}
		}
		var err error
		charges = slices.Grow(charges, len(more))
		if charges, err = call.together(charges, more); err != nil {
			return nil, err
		}
	}
	return charges, nil
}

func (c *Call) check() error {
	switch {
	case len(c.Demands) == 0 && c.Reservation == "" || len(c.Demands) > policy.MaxDemands:
		return &FieldError{Field: "demands", Detail: fmt.Sprintf("%d demands: use 1 to %d", len(c.Demands), policy.MaxDemands)}
	case len(c.IdempotencyKey) > MaxIdempotencyKeyLen:
		detail := fmt.Sprintf("%d bytes long: use 1 to %d", len(c.IdempotencyKey), MaxIdempotencyKeyLen)
		return &FieldError{Field: "idempotency_key", Detail: detail}
	case c.IdempotencyKey != "" && c.Op == count.OpCheck:
		return &FieldError{Field: "idempotency_key", Detail: "a check records nothing that could count twice: remove it, or take"}
	case c.Reserve != 0 && c.Op != count.OpCheck:
		return &FieldError{Field: "reserve_ms", Detail: "only a check reserves: remove it, or check"}
	case c.Reserve != 0 && (c.Reserve < once.MinReserve || c.Reserve > once.MaxReserve || c.Reserve%time.Millisecond != 0):
		return &FieldError{Field: "reserve_ms", Detail: fmt.Sprintf("%d is out of range: use %d to %d",
			c.Reserve.Milliseconds(), once.MinReserve.Milliseconds(), once.MaxReserve.Milliseconds())}
	case c.Cost != 0 && (c.Reservation == "" || len(c.Demands) > 0 || c.Cost > policy.MaxCost || c.Cost < CostNothing):
		return &FieldError{Field: "cost", Detail: fmt.Sprintf("%d does not fit: use 0 to %d beside a reservation, without demands",
			c.Cost, int64(policy.MaxCost))}
	case c.Reservation != "" && c.Op != count.OpRecord:
		return &FieldError{Field: "reservation", Detail: "only a record settles a reservation: remove it, or record"}
	}
	return nil
}

// inDemand names the demand in an error about one of several.
func (c *Call) inDemand(i int, err error) error {
	if len(c.Demands) == 1 {
		return err
	}
	var field *FieldError
	if errors.As(err, &field) {
		return &FieldError{Field: fmt.Sprintf("demands[%d].%s", i, field.Field), Detail: field.Detail}
	}
	return &DemandError{Index: i, Err: err}
}

// answerOf puts the decisions of charges into one answer.
func answerOf(charges []demand.Charge) Answer {
	if len(charges) == 1 {
		return Answer{Decision: charges[0].Decision}
	}
	a := Answer{Demands: make([]count.Decision, len(charges))}
	for i := range charges {
		a.Demands[i] = charges[i].Decision
	}
	a.conclude()
	return a
}

// conclude fills in the answer's own decision from those of its demands.
func (a *Answer) conclude() {
	tightest := &a.Demands[0]
	for i := range a.Demands {
		d := &a.Demands[i]
		if d.IsTighter(tightest) {
			tightest = d
		}
	}
	a.Decision = *tightest
	for i := range a.Demands {
		d := &a.Demands[i]
		a.Allowed, a.WouldAllow = a.Allowed && d.Allowed, a.WouldAllow && d.WouldAllow
		a.Degraded, a.Blocked, a.Reason = a.Degraded || d.Degraded, a.Blocked || d.Blocked, cmp.Or(a.Reason, d.Reason)
		if !d.Allowed && (d.RetryAfter == count.Never || a.RetryAfter != count.Never && d.RetryAfter > a.RetryAfter) {
			a.RetryAfter = d.RetryAfter
		}
		a.Recorded = worse(a.Recorded, d.Recorded)
	}
}

// worse returns what is to be said of two demands' units: that it is unknown, that
// some count, or that none do.
func worse(a, b count.Recorded) count.Recorded {
	for _, r := range []count.Recorded{count.RecordedUnknown, count.RecordedYes} {
		if a == r || b == r {
			return r
		}
	}
	return count.RecordedNo
}
