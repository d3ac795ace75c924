package client

import (
	"context"
	"errors"
	"net/http"
)

// Refund refunds, once, the units of receipt. Its error is a *CallError. It wraps ErrNoReceipt if there is nothing to
// refund, or no longer; its Recorded says whether the units still count. A refund whose answer was lost is not tried
// again: a second one would find nothing, as with a forged receipt.
func (c *Client) Refund(ctx context.Context, receipt string) error {
	if !isReceipt(receipt) {
		return &CallError{"refund", RecordedYes, refuse("receipt", wantReceipt)}
	}
	return c.direct(ctx, &direct{
		op: "refund", body: append(appendText([]byte(`{"receipt":`), receipt), '}'), read: done(http.StatusOK),
		recorded: func(err error) Recorded { return stillCounts(err, !errors.Is(err, ErrClosed)) },
	})
}

// stillCounts returns whether units still count after a refund or a confirm that failed with err. sent says that the
// request may have reached the service.
func stillCounts(err error, sent bool) Recorded {
	p, answered := errors.AsType[*Problem](err)
	switch recorded := recordedOf(err, true, sent); {
	case !sent:
		return RecordedYes
	case answered && p.Status < http.StatusInternalServerError:
		return "" // whether the units of an unknown receipt count is not known
	case recorded == RecordedNo && !answered:
		return RecordedYes // the request was not sent
	default:
		return recorded
	}
}

// Reset removes the counts of identifier under policy, on every instance within a second. Its error is a *CallError,
// whose Recorded says whether the reset took effect.
func (c *Client) Reset(ctx context.Context, policy, identifier string) error {
	body, err := targetOf(policy, identifier)
	if err != nil {
		return &CallError{"reset", RecordedNo, err}
	}
	return c.direct(ctx, &direct{
		op: "reset", body: body, idempotent: true, read: done(http.StatusNoContent),
		recorded: func(err error) Recorded { return recordedOf(err, true, !errors.Is(err, ErrClosed)) },
	})
}
