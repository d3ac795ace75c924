package api

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// decide answers check, record and take.
func (s *Server) decide(ctx context.Context, c *call) (answer, error) {
	if err := s.ask(ctx, c); err != nil {
		return nil, err
	}
	return &c.decided, nil
}

// ask has the engine decide c.
func (s *Server) ask(ctx context.Context, c *call) error {
	a, err := s.engine.Do(ctx, &c.Call)
	if err != nil {
		return c.failed(a.Recorded, err)
	}
	c.decided = decided{Answer: a, listed: c.listed || a.Demands != nil, families: s.opts.Headers}
	return nil
}

// callError is an error in doing what a call asks for.
type callError struct {
	call     *call            // nil: none of check, record and take
	recorded limiter.Recorded // what a failure left behind
	err      error
}

// Error returns the error's own text.
func (e *callError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *callError) Unwrap() error { return e.err }

// failed returns err as that of c. recorded is what the engine says of the units of
// all demands; empty: nothing.
func (c *call) failed(recorded limiter.Recorded, err error) *callError {
	switch {
	case recorded != "":
	case c.Op == limiter.OpCheck && c.Reserve == 0:
		recorded = limiter.RecordedNo
	default:
		recorded = recordedOf(err)
	}
	return &callError{call: c, recorded: recorded, err: err}
}

// recordedOf returns what err says of the units: that it is unknown if it says
// nothing.
func recordedOf(err error) limiter.Recorded {
	if store := (*limiter.StoreError)(nil); errors.As(err, &store) {
		return store.Recorded
	}
	return limiter.RecordedUnknown
}

// field returns what the caller knows as name, which is what the engine calls it.
func (e *callError) field(name string) string {
	c := e.call
	if name == "" || c == nil {
		return name
	}
	demand := (*limiter.DemandError)(nil)
	switch {
	case errors.As(e.err, &demand):
		name = demandPath(demand.Index) + name
	case c.listed && len(c.Demands) == 1 && (name == "policy" || name == "identifier" || name == "cost"):
		name = demandPath(0) + name
	case c.place == 0 && name == "idempotency_key":
		return idempotencyKeyHeader
	}
	return c.path() + name
}
