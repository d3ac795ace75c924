package api

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// reset forgets the counts of a.Identifier under a.Policy.
func (s *Server) reset(ctx context.Context, a admin) (answer, error) {
	err := decode.Undone(s.engine.Reset(ctx, a.Policy, a.Identifier))
	s.audit(ctx, &a.by, "reset", &a.Demand, err)
	if err != nil {
		return nil, err
	}
	return encode.Nothing{}, nil
}
