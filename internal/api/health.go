package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// health is the answer of healthz, and of readyz if it is ready.
type health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

func decodeNothing(*http.Request, *scratch) (struct{}, error) { return struct{}{}, nil }

// healthz answers ok while the process lives, whatever the state of the store.
func (s *Server) healthz(context.Context, struct{}) (answer, error) {
	return encode.Document{Content: health{Status: "ok"}}, nil
}

// waitsForStore is the detail of readyz until the store is reached for the first time.
const waitsForStore = "Not ready: the store has not been reached since the start, and is waited for; the log says why."

// readyz answers whether decisions can be made, with warnings. The reason why not may name hosts, so only the log has
// it, except that the store has not been reached yet.
func (s *Server) readyz(ctx context.Context, _ struct{}) (answer, error) {
	if s.opts.Ready != nil {
		err := s.opts.Ready(ctx)
		switch {
		case errors.Is(err, store.ErrNotConnected):
			return nil, &decode.Error{Kind: encode.ErrNotReady, Detail: waitsForStore}
		case err != nil:
			return nil, fmt.Errorf("%w: %w", encode.ErrNotReady, err)
		}
	}
	ready := health{Status: "ready"}
	if s.opts.Warnings != nil {
		ready.Warnings = s.opts.Warnings()
	}
	return encode.Document{Content: ready}, nil
}
