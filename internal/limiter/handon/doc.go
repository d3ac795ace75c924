// Package handon has charges decided by the owners of their keys: here, if this instance has the right to, or by the peer
// that does. Several demands are prepared by the owners of all their keys, then committed or aborted. What does not suit
// owners is counted as a guest, while the keys are open.
package handon
