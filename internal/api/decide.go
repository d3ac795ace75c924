package api

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func (s *Server) check(ctx context.Context, in demands) (answer, error) {
	return s.decide(ctx, in, s.engine.Check, limiter.RecordedNo)
}

func (s *Server) record(ctx context.Context, in demands) (answer, error) {
	return s.decide(ctx, in, s.engine.Record, limiter.RecordedUnknown)
}

func (s *Server) take(ctx context.Context, in demands) (answer, error) {
	return s.decide(ctx, in, s.engine.Take, limiter.RecordedUnknown)
}

// decide asks the engine for the one demand of in. afterFailure is what became of
// the units when an error does not say.
func (s *Server) decide(
	ctx context.Context,
	in demands,
	ask func(context.Context, limiter.Demand) (limiter.Decision, error),
	afterFailure limiter.Recorded,
) (answer, error) {
	d, err := ask(ctx, in.list[0])
	if err != nil {
		index := -1
		if in.listed {
			index = 0
		}
		return nil, &demandError{index: index, recorded: afterFailure, err: err}
	}
	return &decided{decision: d, listed: in.listed, families: s.opts.Headers}, nil
}
