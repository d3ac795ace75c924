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

// Call is one request of a caller: demands that are allowed or denied together.
type Call struct {
	Op      count.Op
	Demands []Demand // 1 to MaxDemands, each with another policy or identifier

	// IdempotencyKey makes OpTake and OpRecord count once, however often the same call is sent with the same key: 1 to
	// MaxIdempotencyKeyLen bytes; empty: none.
	IdempotencyKey string
	// Caller is the owner of IdempotencyKey: the same key from another caller is another key. Empty: shared by all
	// callers without a name.
	Caller string
	// Reserve makes OpCheck hold units that it allows, for MinReserve to MaxReserve in whole milliseconds; 0: no hold.
	Reserve time.Duration
	// Reservation is the reservation from an earlier check's answer, for OpRecord to settle; empty: none. With it,
	// Demands are those of that check, each with its actual cost, or none.
	Reservation string
	// Cost is the actual cost of each demand of the Reservation if there are no Demands: 1 to MaxCost units, or
	// CostNothing; 0: the held units.
	Cost int64
}

// MaxIdempotencyKeyLen is the maximum length of a Call's IdempotencyKey in bytes.
const MaxIdempotencyKeyLen = 255

// Answer is the answer to a Call. Its own Decision is that of the demand or, for several demands, that of the tightest one,
// with Allowed, WouldAllow and RetryAfter for all of them.
type Answer struct {
	count.Decision
	Demands     []count.Decision // of the call's demands, in their order, and then of derived ones; nil: the Decision is the only one
	Receipt     string           // refunds the recorded units, once; empty: no units were recorded
	Release     string           // a receipt of units under concurrent limits, to refund when their request has ended; empty: no such units
	Reservation string           // settles the held units; empty: no units are held
	Settled     []Settled        // the settled units of a reservation, one for each decision; nil: no reservation was settled
	Replayed    bool             // it is the recorded answer to an earlier call with the same idempotency key
}

// Do decides call. It is Check, Record or Take for one demand or several.
//
// Errors are those of Take, ErrReused and a FieldError for each field of the call itself. It names a field of one of several
// demands "demands[1].cost". After an error other than a StoreError, the answer has no meaning.
func (e *Engine) Do(ctx context.Context, call *Call) (Answer, error) {
	if call.byClaim() {
		return e.doByClaim(ctx, call)
	}
	one, _ := e.borrowed.Get().(*single)
	defer e.borrowed.Put(one)
	if !e.secrets.Known() { // the decision and the read of the secret, which seals receipts, share one store timeout
		limited, cancel := context.WithTimeout(ctx, e.settings.StoreTimeout)
		defer cancel()
		ctx = limited
	}
	charges, err := e.charger.charges(one[:0], call, try{})
	if err != nil {
		return Answer{}, err
	}
	err = e.judge.DecideAll(ctx, charges)
	if haveFallback(charges) {
		charges, err = e.tryInstead(ctx, charges, err, call, func(in try) ([]demand.Charge, bool, error) {
			tried, err := e.charger.charges(nil, call, in)
			if err != nil {
				return nil, false, err
			}
			err = e.judge.DecideAll(ctx, tried)
			return tried, err == nil && allowed(tried), err
		})
	}
	answer := answerOf(charges)
	if err == nil {
		e.refunds.addReceipts(ctx, &answer, charges)
	}
	return answer, err
}

// byClaim reports whether c needs a claim: it has an idempotency key, reserves, or settles a reservation.
func (c *Call) byClaim() bool { return c.IdempotencyKey != "" || c.Reserve > 0 || c.Reservation != "" }

// charges returns the charges of call, ready to decide: first those of its demands, and then those that their policies
// derive. All are under one version of the policies. It uses the memory of charges.
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
	if haveFallback(charges) {
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

// inDemand returns err, an error about demand i, with the demand's name if the call has several.
func (c *Call) inDemand(i int, err error) error {
	if len(c.Demands) == 1 {
		return err
	}
	if field, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Field: fmt.Sprintf("demands[%d].%s", i, field.Field), Detail: field.Detail}
	}
	return &DemandError{Index: i, Err: err}
}

// answerOf returns the answer with the decisions of charges.
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
		a.Recorded = a.Recorded.With(d.Recorded)
	}
}
