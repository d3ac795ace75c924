package client

import (
	"context"

	"github.com/ratelimitd/ratelimitd/client/internal/transport"
)

// direct is a request other than a call.
type direct struct {
	op         string // also the route
	body       []byte
	idempotent bool                 // it may be repeated, even if it took effect
	recorded   func(error) Recorded // whether units count after such an error
	read       func(*reply) error   // reads a successful answer
}

// direct makes a request. It repeats the request if it was certainly not done, or is idempotent. The error is a
// *CallError.
func (c *Client) direct(ctx context.Context, d *direct) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
	defer cancel()
	r := transport.Request{Route: d.op, Body: d.body}
	recorded := RecordedNo
	for tries := c.newTries(); ; {
		err := queueError(c.queue.Bypass(func() error { return c.exchange(ctx, &r, nil, d.read) }))
		if err == nil {
			return nil
		}
		now := d.recorded(err)
		if recorded != RecordedUnknown { // else it may have taken effect
			recorded = now
		}
		if !d.idempotent && now == RecordedUnknown || !tries.again(ctx, err, nil) {
			return &CallError{d.op, recorded, err}
		}
	}
}

// done returns a reader of answers without a body.
func done(status int) func(*reply) error {
	return func(r *reply) error {
		if r.Status == status {
			return nil
		}
		return r.problem()
	}
}

// targetOf returns the body of a request about identifier under policy. The error is a *Problem.
func targetOf(policy, identifier string) ([]byte, error) {
	call := Call{Op: OpCheck, Demands: []Demand{{Policy: policy, Identifier: identifier}}}
	if err := call.Validate(); err != nil {
		return nil, err
	}
	return append(call.appendMembers([]byte{'{'}), '}'), nil
}
