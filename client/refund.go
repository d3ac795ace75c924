package client

import (
	"context"
	"errors"
	"net/http"
	"unicode/utf8"
)

// Refund gives back, once, what receipt was given for. Its error, a *CallError, is ErrNoReceipt
// where there is nothing to give back, or nothing any more; its Recorded says whether the
// units count still.
func (c *Client) Refund(ctx context.Context, receipt string) error {
	if receipt == "" || !utf8.ValidString(receipt) {
		return &CallError{"refund", RecordedYes, refuse("receipt", "It must be given back as it was answered.")}
	}
	r := request{path: "refund", body: append(appendText([]byte(`{"receipt":`), receipt), '}')}
	err := c.direct(ctx, &r, http.StatusOK, func(err error) bool { return stillCounts(err) != RecordedUnknown })
	if err == nil {
		return nil
	}
	return &CallError{"refund", stillCounts(err), err}
}

// stillCounts returns whether units count that err kept from being refunded. A refund whose
// answer was lost is not tried again: a second one would find nothing, like a forged one.
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
// second. Of its error, a *CallError, Recorded says whether it took effect.
func (c *Client) Reset(ctx context.Context, policy, identifier string) error {
	call := Call{Op: OpCheck, Demands: []Demand{{Policy: policy, Identifier: identifier}}}
	err := call.check()
	if err == nil {
		r := request{path: "reset", body: append(call.appendMembers([]byte{'{'}), '}')}
		err = c.direct(ctx, &r, http.StatusNoContent, func(error) bool { return true })
	}
	if err == nil {
		return nil
	}
	return &CallError{"reset", recordedOf(err, true, !errors.Is(err, ErrClosed)), err}
}

// direct makes a request whose answer says nothing beside its status, and tries again where
// safe says that it may.
func (c *Client) direct(ctx context.Context, r *request, status int, safe func(error) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
	defer cancel()
	for tries := c.newTries(); ; {
		err := c.traffic.bypass(func() error {
			return c.exchange(ctx, r, func(r *reply) error {
				if r.status == status {
					return nil
				}
				return r.problem()
			})
		})
		if err == nil || !safe(err) || !tries.again(ctx, err, nil) {
			return err
		}
	}
}
