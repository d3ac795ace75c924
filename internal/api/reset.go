package api

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// reset forgets what was counted for d.Identifier under d.Policy; d has no cost.
func (s *Server) reset(ctx context.Context, d limiter.Demand) (answer, error) {
	if err := s.engine.Reset(ctx, d.Policy, d.Identifier); err != nil {
		return nil, &callError{recorded: recordedOf(err), err: err}
	}
	return nothing{}, nil
}
