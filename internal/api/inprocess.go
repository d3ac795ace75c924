package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// Problem is an error as a server would answer it, for callers that use the engine without a server.
type Problem struct {
	Type, Title   string
	Status        int
	Field, Detail string
	Recorded      count.Recorded // empty: the status says it
	RetryAfter    time.Duration
}

// ProblemOf returns the answer of a server to the call c, which failed with err and left its units as recorded. c is
// nil for other calls than checks, records and takes.
func ProblemOf(c *limiter.Call, recorded count.Recorded, err error) *Problem {
	if c == nil {
		return exported(encode.ProblemOf(decode.Undone(err)))
	}
	return exported(encode.ProblemOf((&decode.Call{Call: *c}).Failed(recorded, err)))
}

func exported(p *encode.Problem) *Problem {
	e := &Problem{Type: p.Type, Title: p.Title(), Status: p.Status, Field: p.Field, Detail: p.Detail, Recorded: p.Recorded}
	if e.Field == decode.IdempotencyKeyHeader { // there are no headers
		e.Field = "idempotency_key"
	}
	if p.Status == http.StatusServiceUnavailable {
		e.RetryAfter = encode.RetryUnavailable * time.Second
	}
	return e
}

// Outcome is the result of one call of a batch.
type Outcome struct {
	limiter.Answer
	Problem  *Problem // nil: Answer is the decision
	NotBegun bool     // it was not begun before its batch or the context ended
}

// Batch decides calls as POST /v1/batch does: each on its own, and those of one policy and
// identifier in their order.
func (s *Server) Batch(ctx context.Context, calls []limiter.Call) []Outcome {
	ops := make([]operation, len(calls))
	for i := range calls {
		ops[i].asked.Call = calls[i]
	}
	if s.inMemory {
		s.inTurn(ctx, ops)
	} else {
		s.inLanes(ctx, ops, lanesOf(ops, s.canonical), nobody)
	}
	outcomes := make([]Outcome, len(ops))
	for i := range ops {
		outcomes[i].Answer = ops[i].decided.Answer
		if ops[i].err == nil && ops[i].decided.Policy == nil { // it was not begun
			ops[i].err = ops[i].asked.Failed(count.RecordedNo, errNotBegun)
		}
		if ops[i].err != nil {
			outcomes[i].Problem = exported(encode.ProblemOf(ops[i].err))
			outcomes[i].NotBegun = errors.Is(ops[i].err, errNotBegun)
		}
	}
	return outcomes
}
