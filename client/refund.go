package client

import (
	"context"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/client/internal/transport"
)

// Refund gives back, once, the units that receipt was given for. Its error is a *CallError: it
// is ErrNoReceipt if there is nothing to give back, or not any more, and its Recorded says
// whether the units still count.
func (c *Client) Refund(ctx context.Context, receipt string) error {
	if receipt == "" || !utf8.ValidString(receipt) {
		return &CallError{"refund", RecordedYes, refuse("receipt", "It must be given back as it was answered.")}
	}
	r := transport.Request{Route: "refund", Body: append(appendText([]byte(`{"receipt":`), receipt), '}')}
	err := c.direct(ctx, &r, http.StatusOK, func(err error) bool { return stillCounts(err) != RecordedUnknown })
	if err == nil {
		return nil
	}
	return &CallError{"refund", stillCounts(err), err}
}

// stillCounts returns whether units still count after a refund that failed with err. A refund
// whose answer was lost is not tried again: a second one would find nothing, like a forged one.
func stillCounts(err error) Recorded {
	p := (*Problem)(nil)
	switch recorded := recordedOf(err, true, !errors.Is(err, ErrClosed)); {
	case errors.As(err, &p) && p.Status < http.StatusInternalServerError:
		return "" // it is not known what for
	case recorded == RecordedNo && p == nil:
		return RecordedYes // nobody was asked
	default:
		return recorded
	}
}

// Reset forgets what was counted for identifier under policy, on every instance within a
// second. Its error is a *CallError, whose Recorded says whether the reset took effect.
func (c *Client) Reset(ctx context.Context, policy, identifier string) error {
	call := Call{Op: OpCheck, Demands: []Demand{{Policy: policy, Identifier: identifier}}}
	err := call.Validate()
	if err == nil {
		r := transport.Request{Route: "reset", Body: append(call.appendMembers([]byte{'{'}), '}')}
		err = c.direct(ctx, &r, http.StatusNoContent, func(error) bool { return true })
	}
	if err == nil {
		return nil
	}
	return &CallError{"reset", recordedOf(err, true, !errors.Is(err, ErrClosed)), err}
}

// direct makes a request without calls, whose answer says nothing beside its status. It tries
// again where repeatable says that it may.
func (c *Client) direct(ctx context.Context, r *transport.Request, status int, repeatable func(error) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
	defer cancel()
	for tries := c.newTries(); ; {
		err := queueError(c.queue.Bypass(func() error {
			return c.exchange(ctx, r, nil, func(r *reply) error {
				if r.Status == status {
					return nil
				}
				return r.problem()
			})
		}))
		if err == nil || !repeatable(err) || !tries.again(ctx, err, nil) {
			return err
		}
	}
}
