// Package once makes things happen only once. It has claims on cells, the tokens that callers return (receipts and
// reservations), and the reservations that this process must end.
package once
