package envoy

import (
	"context"
	"errors"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/envoy/kuadrantpb"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// maxHold is the longest hold, and the default, as Limitador's --max-reservation-ttl.
const maxHold = time.Minute

// estimate has the common parts of the requests of Reserve and Commit.
type estimate struct {
	request *rls.RateLimitRequest
	field   string // of the amount
	amount  uint64
}

// Reserve is a method of Limitador. It holds the amount under each descriptor's policy, or under none. Without an
// amount it holds nothing, and answers whether one unit would be allowed.
func (s *Server) Reserve(ctx context.Context, r *kuadrantpb.ReserveRequest) (*kuadrantpb.ReserveResponse, error) {
	e := estimate{&rls.RateLimitRequest{Domain: r.GetDomain(), Descriptors: r.GetDescriptors()}, "amount", r.GetAmount()}
	response := &kuadrantpb.ReserveResponse{Code: rls.RateLimitResponse_OK}
	err := s.asked(ctx, count.OpTake, &e, func(asks []ask, demands []limiter.Demand, of []int) error {
		call := limiter.Call{Op: count.OpCheck, Demands: demands}
		if e.amount > 0 {
			call.Reserve = holdOf(r.GetTtl())
		}
		answer, err := s.doAll(ctx, &call)
		switch {
		case errors.Is(err, limiter.ErrCostTooLarge) || errors.Is(err, limiter.ErrInvalid): // of one demand, which may be in mode shadow
			denied, err := s.checkEach(ctx, asks)
			response.Code = codeOf(denied)
			return err
		case err != nil:
			return err
		}
		spread(asks, limitedOf(asks), of, &answer)
		response.Code, response.ReservationId = codeOf(!answer.Allowed), answer.Reservation
		return nil
	})
	return response, err
}

// checkEach checks each of asks on its own, and reports whether one is denied.
func (s *Server) checkEach(ctx context.Context, asks []ask) (denied bool, err error) {
	for _, i := range limitedOf(asks) {
		a := &asks[i]
		a.op = count.OpCheck
		if s.decide(ctx, a); a.err != nil {
			return denied, a.err
		}
		denied = denied || a.denied
	}
	return denied, nil
}

// Commit is a method of Limitador. It records the actual amount for each descriptor in place of the reserved one. For
// an unknown reservation it does what Report does. Unlike Limitador's, a repeated Commit of a reservation counts once.
func (s *Server) Commit(ctx context.Context, r *kuadrantpb.CommitRequest) (*kuadrantpb.CommitResponse, error) {
	released := false
	e := estimate{&rls.RateLimitRequest{Domain: r.GetDomain(), Descriptors: r.GetDescriptors()}, "actual_amount", r.GetActualAmount()}
	err := s.asked(ctx, count.OpRecord, &e, func(asks []ask, demands []limiter.Demand, of []int) (err error) {
		var known bool
		if released, known, err = s.settle(ctx, r, demands); known || err != nil || e.amount == 0 {
			return err
		}
		answer, err := s.doAll(ctx, &limiter.Call{Op: count.OpRecord, Demands: demands})
		if err == nil {
			spread(asks, limitedOf(asks), of, &answer)
		}
		return err
	})
	return &kuadrantpb.CommitResponse{ReservationReleased: released}, err
}

// settle settles r's reservation of demands, and reports whether it was still held, and whether it is known.
func (s *Server) settle(ctx context.Context, r *kuadrantpb.CommitRequest, demands []limiter.Demand) (released, known bool, err error) {
	switch {
	case r.GetReservationId() == "" || len(demands) == 0:
		return false, false, nil
	case r.GetActualAmount() == 0:
		err := s.engine.Refund(ctx, r.GetReservationId())
		if errors.Is(err, limiter.ErrNoReceipt) {
			return false, true, nil
		}
		return err == nil, true, err
	}
	answer, err := s.doAll(ctx, &limiter.Call{Op: count.OpRecord, Demands: demands, Reservation: r.GetReservationId()})
	if errors.Is(err, limiter.ErrInvalid) {
		return false, false, nil
	}
	for _, settled := range answer.Settled {
		released = released || settled.Over < settled.Cost
	}
	return released, true, err
}

// asked calls do with the asks of e, a demand for each policy and identifier, and for each limited ask the index of its
// demand. It does not call do if nothing is limited.
func (s *Server) asked(ctx context.Context, op count.Op, e *estimate, do func([]ask, []limiter.Demand, []int) error) error {
	d := s.mapping.Load().domains[e.request.GetDomain()]
	asks := make([]ask, min(len(e.request.GetDescriptors()), maxDescriptors))
	if err := s.fill(ctx, asks, op, e.request, d); err != nil {
		return err
	}
	if e.amount > policy.MaxCost {
		return invalid(e.field, "%d is out of range: use 0 to %d", e.amount, int64(policy.MaxCost))
	}
	group := limitedOf(asks)
	for _, i := range group {
		asks[i].demand.Cost = int64(e.amount)
	}
	demands, of := demandsOf(asks, group, false) // as in Limitador, equal counters are counted once
	if len(demands) > policy.MaxDemands {
		return invalid("descriptors", "%d of them stand or fall together: use at most %d", len(demands), policy.MaxDemands)
	}
	defer s.tell(d, asks)
	if len(demands) == 0 {
		return nil
	}
	return do(asks, demands, of)
}

// doAll lets the engine decide call, within the trace of ctx.
func (s *Server) doAll(ctx context.Context, call *limiter.Call) (limiter.Answer, error) {
	ctx, span := s.opts.Tracer.Decide(ctx, call.Op)
	answer, err := s.engine.Do(ctx, call)
	span.Decided(&answer.Decision, len(call.Demands), err)
	return answer, err
}

// holdOf returns the duration of a hold, given within its bounds.
func holdOf(given *durationpb.Duration) time.Duration {
	ttl := maxHold
	if given != nil && given.CheckValid() == nil && given.AsDuration() >= 0 {
		ttl = given.AsDuration().Truncate(time.Millisecond)
	}
	return min(max(ttl, once.MinReserve), maxHold)
}
