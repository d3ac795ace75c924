package api

import (
	"context"
	"fmt"
)

// health is the answer of healthz and of a readyz that is well.
type health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

// healthz says that the process lives, whatever the store does.
func (s *Server) healthz(context.Context, struct{}) (answer, error) {
	return document{health{Status: "ok"}}, nil
}

// readyz says whether decisions can be made, and what a person should look at all the same. Why not is for the log alone: it may
// name hosts.
func (s *Server) readyz(ctx context.Context, _ struct{}) (answer, error) {
	if s.opts.Ready != nil {
		if err := s.opts.Ready(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotReady, err)
		}
	}
	ready := health{Status: "ready"}
	if s.opts.Warnings != nil {
		ready.Warnings = s.opts.Warnings()
	}
	return document{ready}, nil
}
