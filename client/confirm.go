package client

import "context"

// Confirm confirms that the units of receipt were real: the code was entered. Limits with until: confirmed then free
// them, and conversions count them as confirmed, once, however often Confirm is called. It also returns nil if no limit
// depends on confirmations. Its error is a *CallError: it is ErrNoReceipt if the receipt was refunded or its window is
// over, and its Recorded says whether the units still count as unconfirmed. A client that fails open gives an error,
// too.
func (c *Client) Confirm(ctx context.Context, receipt string) error {
	_, err := c.do(ctx, Call{Op: OpConfirm, Receipt: receipt})
	return err
}
