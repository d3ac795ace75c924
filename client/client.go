package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/circuit"
	"github.com/ratelimitd/ratelimitd/client/internal/join"
	"github.com/ratelimitd/ratelimitd/client/internal/transport"
	"github.com/ratelimitd/ratelimitd/client/line"
)

// Client asks a ratelimitd, or several behind one address. It is safe for concurrent use. Make one per process with
// New.
type Client struct {
	opts       Options
	transport  *transport.Transport
	breaker    *circuit.Breaker
	queue      *join.Queue[*asked]
	spare      sync.Pool // of *asked that no other goroutine uses
	failedOpen failedOpen
	lines      line.Lines // the callers of Wait
}

// New returns a client of the service at baseURL, such as http://127.0.0.1:8080. A nil opts means the zero Options. New
// sends nothing. It fails if baseURL or opts is invalid.
func New(baseURL string, opts *Options) (*Client, error) {
	c := &Client{opts: opts.withDefaults()}
	var err error
	if c.transport, err = transport.New(baseURL, c.opts.Header, inject, c.opts.Transport); err != nil {
		return nil, fmt.Errorf("ratelimitd: %w", err)
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	c.breaker = circuit.New(c.opts.circuit())
	joined := join.Options[*asked]{
		Requests: c.opts.Concurrency, MaxRequests: max(join.MaxRequests, c.opts.Concurrency),
		MaxCalls: maxBatchOps, MaxLen: maxBatchLen - len(batchOpening) - len(batchClosing), Send: c.send,
	}
	if c.opts.DisableBatching {
		joined.Requests, joined.MaxRequests, joined.MaxCalls = maxUnbatched, maxUnbatched, 1
	}
	c.queue = join.New(joined)
	c.spare.New = func() any { return newAsked() }
	return c, nil
}

// Close waits until all calls under way are answered, and closes idle connections. Later calls return ErrClosed. It
// returns nil.
func (c *Client) Close() error {
	c.queue.Close()
	c.transport.CloseIdleConnections()
	return nil
}

// Check returns whether demands would be allowed now, and records nothing.
func (c *Client) Check(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpCheck, Demands: demands})
}

// Record records demands, whatever the limits, and returns the resulting counts.
func (c *Client) Record(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpRecord, Demands: demands})
}

// Take checks and records demands as one step: all are recorded, or none is.
func (c *Client) Take(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpTake, Demands: demands})
}

// Reserve checks demands and, if they are allowed, holds their units for the duration hold. A Settle or a SettleAt of
// the Decision's Reservation makes them count, and a Release frees them; otherwise they are free again after hold.
func (c *Client) Reserve(ctx context.Context, hold time.Duration, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpCheck, Demands: demands, Reserve: hold})
}

// Settle records the units that a Reserve holds.
func (c *Client) Settle(ctx context.Context, reservation string) (Decision, error) {
	return c.Do(ctx, Call{Op: OpRecord, Reservation: reservation})
}

// SettleAt records the units that each demand of a Reserve actually used: 0 or more. Held units that were not used are
// freed, and units beyond those held count whatever the limit: see Decision.Over. Only the first settlement takes
// effect.
func (c *Client) SettleAt(ctx context.Context, reservation string, units int64) (Decision, error) {
	return c.Do(ctx, Settlement(reservation, units))
}

// Settlement returns the call that SettleAt makes.
func Settlement(reservation string, units int64) Call {
	switch {
	case units == 0:
		units = CostNothing
	case units < 0: // Validate refuses it
		units--
	}
	return Call{Op: OpRecord, Reservation: reservation, Cost: units}
}

// Release frees at once the units that a Reserve holds. Its errors are those of Refund: ErrNoReceipt means that it was
// settled or released before, or is over.
func (c *Client) Release(ctx context.Context, reservation string) error {
	return c.Refund(ctx, reservation)
}

// Do makes one call that is not a confirm. Its error is a *CallError. A denial is not an error.
func (c *Client) Do(ctx context.Context, call Call) (Decision, error) {
	if call.Op == OpConfirm {
		return Decision{}, &CallError{string(call.Op), RecordedYes, refuse("op", "A confirm has no decision: use Confirm, or a Batch.")}
	}
	return c.do(ctx, call)
}

// do makes one call. The decision of a confirm is empty.
func (c *Client) do(ctx context.Context, call Call) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, &CallError{string(call.Op), call.recordedAfter(err, false), err}
	}
	a := c.spare.Get().(*asked)
	if err := c.write(a, call); err != nil {
		return Decision{}, &CallError{string(call.Op), call.recordedAfter(err, false), err}
	}
	a.begin(ctx, c.opts.Timeout)
	d, kept, err := c.tries(ctx, a)
	a.timer.Stop()
	if kept {
		a.reset()
		c.spare.Put(a)
	}
	if err != nil {
		return c.unanswered(&call, err)
	}
	return d, nil
}
