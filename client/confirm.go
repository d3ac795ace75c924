package client

import (
	"context"
	"net/http"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/client/internal/transport"
)

// Confirm says that what receipt was given for turned out to be real: the code was entered. Limits
// until: confirmed give the units back, and conversions count them as confirmed, once however often it
// is said. It is nil also where no limit goes by it. Its error is a *CallError: it is ErrNoReceipt if
// the receipt was refunded or its window is over, and its Recorded says whether the units still count
// as unconfirmed.
func (c *Client) Confirm(ctx context.Context, receipt string) error {
	if receipt == "" || !utf8.ValidString(receipt) {
		return &CallError{"confirm", RecordedYes, refuse("receipt", "It must be given back as it was answered.")}
	}
	r := transport.Request{Route: "confirm", Body: append(appendText([]byte(`{"receipt":`), receipt), '}')}
	err := c.direct(ctx, &r, http.StatusOK, func(error) bool { return true })
	if err == nil {
		return nil
	}
	return &CallError{"confirm", stillCounts(err), err}
}
