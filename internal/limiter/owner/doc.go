// Package owner defines an instance's right to count for a key, as packages internal/cluster and internal/peer implement it,
// the errors of an instance that lacks it, and what an owner does for a key besides decisions.
package owner
