package api

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// confirmed is the answer of confirm.
type confirmed struct {
	Confirmed bool `json:"confirmed"`
	Replayed  bool `json:"replayed,omitempty"`
}

// confirm confirms the units of receipt, once.
func (s *Server) confirm(ctx context.Context, receipt string) (answer, error) {
	done, err := s.engine.Confirm(ctx, receipt)
	if err != nil {
		return nil, decode.Undone(err)
	}
	return encode.Document{Content: confirmed(done)}, nil
}

// confirmIn is confirm for an operation of a batch.
func (s *Server) confirmIn(ctx context.Context, c *call) error {
	done, err := s.engine.Confirm(ctx, c.asked.Receipt)
	c.confirmation = done
	if err != nil {
		return c.asked.Failed(decode.RecordedOf(err), err)
	}
	return nil
}
