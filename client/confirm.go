package client

import "context"

// Confirm says that what receipt was given for turned out to be real: the code was entered. Limits
// until: confirmed give the units back, and conversions count them as confirmed, once however often it
// is said. It is nil also where no limit goes by it. Its error is a *CallError: it is ErrNoReceipt if
// the receipt was refunded or its window is over, and its Recorded says whether the units still count
// as unconfirmed. A client that fails open gives an error, too.
func (c *Client) Confirm(ctx context.Context, receipt string) error {
	_, err := c.do(ctx, Call{Op: OpConfirm, Receipt: receipt})
	return err
}
