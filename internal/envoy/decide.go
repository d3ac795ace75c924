package envoy

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// decideAll decides the asks that have a policy. Over a shared store it decides them concurrently, so that they share
// requests to it.
func (s *Server) decideAll(ctx context.Context, asks []ask) {
	waiting := 0
	for i := range asks {
		if asks[i].limited() {
			waiting++
		}
	}
	if s.inMemory || waiting <= 1 {
		for i := range asks {
			if asks[i].limited() {
				s.decide(ctx, &asks[i])
			}
		}
		return
	}
	var all sync.WaitGroup
	for i := range asks {
		if asks[i].limited() {
			all.Go(func() { s.decideSafely(ctx, &asks[i]) })
		}
	}
	all.Wait()
}

// errPanic is the error of a panic, which is in the log.
var errPanic = errors.New("panic")

// decideSafely decides a, and turns a panic into its error.
func (s *Server) decideSafely(ctx context.Context, a *ask) {
	defer func() {
		if cause := recover(); cause != nil {
			s.panics.Panic(ctx, s.opts.Logger, "panic in a decision", cause, s.opts.Now())
			a.err = errPanic
		}
	}()
	s.decide(ctx, a)
}

func (s *Server) decide(ctx context.Context, a *ask) {
	a.decision, a.err = s.do(ctx, a.op, a.demand)
	switch {
	case a.err == nil:
		a.conclude(&a.decision)
	case errors.Is(a.err, limiter.ErrCostTooLarge):
		s.decideTooLarge(ctx, a)
	case errors.Is(a.err, limiter.ErrInvalid) && a.op != count.OpRecord:
		s.decideUnreadable(a)
	}
}

// decideUnreadable denies an identifier that is not in the policy's form, such as a phone number. An error would be a
// way around the limit, because Envoy may let a request pass whose check failed.
func (s *Server) decideUnreadable(a *ask) {
	p, known := s.engine.Policy(a.demand.Policy)
	if !known {
		a.err = limiter.ErrUnknownPolicy
		return
	}
	a.denied, a.err = p.Mode == policy.ModeEnforce, nil
}

// decideTooLarge denies a cost that the limit can never hold. If denied attempts count, so does this one, because Envoy
// may ask after the units were used.
func (s *Server) decideTooLarge(ctx context.Context, a *ask) {
	p, known := s.engine.Policy(a.demand.Policy)
	if !known {
		a.err = limiter.ErrUnknownPolicy
		return
	}
	a.denied, a.err = true, nil
	if p.Count != policy.CountAll {
		smaller := func(l policy.Limit) bool { return l.Limit > 0 && l.Capacity() < a.demand.Cost && !l.Shadow }
		a.limit = &p.Limits[max(0, slices.IndexFunc(p.Limits, smaller))]
		a.decision.RetryAfter = count.Never
		return
	}
	if a.decision, a.err = s.do(ctx, count.OpRecord, a.demand); a.err == nil {
		a.limit = a.decision.TightestLimit()
	}
}

func (s *Server) do(ctx context.Context, op count.Op, d limiter.Demand) (count.Decision, error) {
	ctx, span := s.opts.Tracer.Decide(ctx, op)
	decision, err := s.ask(ctx, op, d)
	span.Decided(&decision, 1, err)
	return decision, err
}

func (s *Server) ask(ctx context.Context, op count.Op, d limiter.Demand) (count.Decision, error) {
	switch op {
	case count.OpCheck:
		return s.engine.Check(ctx, d)
	case count.OpRecord:
		return s.engine.Record(ctx, d)
	}
	return s.engine.Take(ctx, d)
}
