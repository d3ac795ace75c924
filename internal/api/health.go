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

// health is the answer of healthz and of a readyz that is well.
type health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

func decodeNothing(*http.Request, *scratch) (struct{}, error) { return struct{}{}, nil }

// healthz says that the process lives, whatever the store does.
func (s *Server) healthz(context.Context, struct{}) (answer, error) {
	return encode.Document{Content: health{Status: "ok"}}, nil
}

// waitsForStore is the answer of readyz while the store was never reached.
const waitsForStore = "Not ready: the store has not been reached since the start, and is waited for; the log says why."

// readyz says whether decisions can be made, and what a person should look at all the same. Why
// not is for the log alone, as it may name hosts, but for a store that is waited for.
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
