// Package once has what may happen only once: claims on cells, the tokens that callers bring back (receipts and
// reservations), and the reservations that this process has to end.
package once
