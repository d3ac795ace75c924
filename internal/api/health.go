package api

import (
	"context"
	"fmt"
)

// health is the answer of healthz and of a readyz that is well.
type health struct {
	Status string `json:"status"`
}

// healthz says that the process lives, whatever the store does.
func (s *Server) healthz(context.Context, struct{}) (answer, error) {
	return document{health{"ok"}}, nil
}

// readyz says whether decisions can be made. Why not is for the log alone: it may
// name hosts.
func (s *Server) readyz(ctx context.Context, _ struct{}) (answer, error) {
	if s.opts.Ready != nil {
		if err := s.opts.Ready(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotReady, err)
		}
	}
	return document{health{"ready"}}, nil
}
