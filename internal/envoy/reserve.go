package envoy

import (
	"context"
	"errors"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// maxHold is the longest hold, and that of a request that names none: Limitador's --max-reservation-ttl.
const maxHold = time.Minute

// Reserve is Limitador's: it holds the amount under each descriptor's policy, or under none. Without an amount it holds
// nothing, and says whether one unit would be allowed.
func (s *Server) Reserve(ctx context.Context, r *reserveRequest) (*reserveResponse, error) {
	return s.asked(ctx, count.OpTake, &r.estimate, func(asks []ask, demands []limiter.Demand, of []int) (*reserveResponse, error) {
		call := limiter.Call{Op: count.OpCheck, Demands: demands}
		if r.amount > 0 {
			call.Reserve = r.hold()
		}
		answer, err := s.doAll(ctx, &call)
		switch {
		case errors.Is(err, limiter.ErrCostTooLarge) || errors.Is(err, limiter.ErrInvalid): // of one; it may be in mode shadow
			return s.reserveNothing(ctx, asks)
		case err != nil:
			return nil, err
		}
		spread(asks, limitedOf(asks), of, &answer)
		return &reserveResponse{code: codeOf(!answer.Allowed), id: answer.Reservation}, nil
	})
}

// reserveNothing answers for asks of which one can't be decided: each is checked on its own, and nothing is held.
func (s *Server) reserveNothing(ctx context.Context, asks []ask) (*reserveResponse, error) {
	denied := false
	for _, i := range limitedOf(asks) {
		a := &asks[i]
		a.op = count.OpCheck
		if s.decide(ctx, a); a.err != nil {
			return nil, a.err
		}
		denied = denied || a.denied
	}
	return &reserveResponse{code: codeOf(denied)}, nil
}

// Commit is Limitador's: it records the actual amount for each descriptor, in place of what the reservation holds. One
// that is unknown is recorded as Report does. Unlike there, a repeated Commit of a reservation counts once.
func (s *Server) Commit(ctx context.Context, r *commitRequest) (*commitResponse, error) {
	released := false
	_, err := s.asked(ctx, count.OpRecord, &r.estimate, func(asks []ask, demands []limiter.Demand, of []int) (*reserveResponse, error) {
		var known bool
		var err error
		if released, known, err = s.settle(ctx, r, demands); known || err != nil || r.amount == 0 {
			return nil, err
		}
		answer, err := s.doAll(ctx, &limiter.Call{Op: count.OpRecord, Demands: demands})
		if err == nil {
			spread(asks, limitedOf(asks), of, &answer)
		}
		return nil, err
	})
	return &commitResponse{released: released}, err
}

// settle settles r's reservation of demands, and reports whether that was held until now, and whether it is one.
func (s *Server) settle(ctx context.Context, r *commitRequest, demands []limiter.Demand) (released, known bool, err error) {
	switch {
	case r.reservation == "" || len(demands) == 0:
		return false, false, nil
	case r.amount == 0:
		err := s.engine.Refund(ctx, r.reservation)
		if errors.Is(err, limiter.ErrNoReceipt) {
			return false, true, nil
		}
		return err == nil, true, err
	}
	answer, err := s.doAll(ctx, &limiter.Call{Op: count.OpRecord, Demands: demands, Reservation: r.reservation})
	if errors.Is(err, limiter.ErrInvalid) {
		return false, false, nil
	}
	for _, settled := range answer.Settled {
		released = released || settled.Over < settled.Cost
	}
	return released, true, err
}

// asked has do decide what r asks for: a demand for each policy and identifier, and for each limited ask the index of its
// own. Where nothing is limited, the answer is OK.
func (s *Server) asked(
	ctx context.Context, op count.Op, r *estimate, do func([]ask, []limiter.Demand, []int) (*reserveResponse, error),
) (*reserveResponse, error) {
	caller, err := s.admit(ctx, op)
	if err != nil {
		return nil, s.refuse(ctx, caller, err)
	}
	d := s.mapping.Load().domains[r.request.GetDomain()]
	asks := make([]ask, min(len(r.request.GetDescriptors()), maxDescriptors))
	if err := prepare(asks, op, &r.request, d); err != nil {
		return nil, err
	}
	if r.amount > policy.MaxCost {
		return nil, invalid(r.amountField, "%d is out of range: use 0 to %d", r.amount, int64(policy.MaxCost))
	}
	if err := permitted(caller, asks); err != nil {
		return nil, s.refuse(ctx, caller, err)
	}
	if err := s.bringLimits(asks, &r.request); err != nil {
		return nil, err
	}
	demands, of := demandsOf(asks, int64(r.amount))
	if len(demands) > policy.MaxDemands {
		return nil, invalid("descriptors", "%d of them stand or fall together: use at most %d", len(demands), policy.MaxDemands)
	}
	defer s.tell(d, asks)
	if len(demands) == 0 {
		return &reserveResponse{code: rls.RateLimitResponse_OK}, nil
	}
	return do(asks, demands, of)
}

// limitedOf returns the indexes of the asks that a policy decides.
func limitedOf(asks []ask) (group []int) {
	for i := range asks {
		if asks[i].limited() {
			group = append(group, i)
		}
	}
	return group
}

// demandsOf returns a demand of cost for each policy and identifier of asks, and for each limited ask the index of its
// demand: as with Limitador's counters, the same one twice is one.
func demandsOf(asks []ask, cost int64) (demands []limiter.Demand, of []int) {
	type key struct {
		policy     string
		identifier keys.Identifier
	}
	seen := make(map[key]int)
	for _, i := range limitedOf(asks) {
		d := &asks[i].demand
		d.Cost = cost
		at, twice := seen[key{d.Policy, d.Identifier}]
		if !twice {
			at = len(demands)
			seen[key{d.Policy, d.Identifier}] = at
			demands = append(demands, *d)
		}
		of = append(of, at)
	}
	return demands, of
}

// doAll has the engine decide call, as a part of the trace of ctx.
func (s *Server) doAll(ctx context.Context, call *limiter.Call) (limiter.Answer, error) {
	ctx, span := s.opts.Tracer.Decide(ctx, call.Op)
	answer, err := s.engine.Do(ctx, call)
	span.Decided(&answer.Decision, len(call.Demands), err)
	return answer, err
}

// hold returns how long r's reservation holds: as long as it says, within the bounds.
func (r *reserveRequest) hold() time.Duration {
	ttl := maxHold
	if r.ttl != nil && r.ttl.CheckValid() == nil && r.ttl.AsDuration() >= 0 {
		ttl = r.ttl.AsDuration().Truncate(time.Millisecond)
	}
	return min(max(ttl, once.MinReserve), maxHold)
}
