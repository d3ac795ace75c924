package api

import (
	"context"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// call is a check, a record or a take, or a confirmation in a batch, and later its answer.
type call struct {
	asked   decode.Call
	decided encode.Decided

	confirmation limiter.Confirmation
}

// decodeCall reads {"policy", "identifier", "cost"} or {"demands": [...]}, and the other members of op: "reserve_ms",
// "reservation", and the header Idempotency-Key.
func decodeCall(op count.Op) func(r *http.Request, m *scratch) (*call, error) {
	names := decode.NamesOf(op)
	return func(r *http.Request, m *scratch) (*call, error) {
		body, err := m.readJSON(r, decode.MaxBody)
		if err != nil {
			return nil, err
		}
		m.call = call{asked: decode.Call{Call: limiter.Call{Op: op, Caller: m.caller.Name}}}
		c := &m.call.asked
		if err := c.Read(body, names); err != nil {
			return nil, err
		}
		if err := permitted(m.caller, c); err != nil {
			return nil, err
		}
		if op != count.OpCheck || c.Reserve > 0 { // a check that holds nothing can be repeated as it is
			c.IdempotencyKey, err = decode.IdempotencyKey(r.Header)
		}
		if err == nil {
			err = m.reserve(m.share.Room(&c.Call, c.Listed))
		}
		return &m.call, err
	}
}

// decide answers check, record and take.
func (s *Server) decide(ctx context.Context, c *call) (answer, error) {
	if err := s.ask(ctx, c); err != nil {
		return nil, err
	}
	return &c.decided, nil
}

// ask lets the engine decide c, or confirm its receipt.
func (s *Server) ask(ctx context.Context, c *call) error {
	if c.asked.Op == decode.OpConfirm {
		return s.confirmIn(ctx, c)
	}
	a, err := s.do(ctx, &c.asked.Call)
	if err != nil {
		return c.asked.Failed(a.Recorded, err)
	}
	c.decided = encode.Decided{Answer: a, Listed: c.asked.Listed || a.Demands != nil, Families: s.opts.Headers}
	return nil
}

// do lets the engine decide c, within the trace of ctx.
func (s *Server) do(ctx context.Context, c *limiter.Call) (limiter.Answer, error) {
	ctx, span := s.opts.Tracer.Decide(ctx, c.Op)
	a, err := s.engine.Do(ctx, c)
	span.Decided(&a.Decision, max(len(a.Demands), len(c.Demands)), err)
	return a, err
}
