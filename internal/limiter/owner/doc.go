// Package owner defines terms, an instance's right to count for a key, as packages internal/cluster and internal/peer
// implement them, the errors of an instance that is not in term, and what an owner does for a key besides decisions.
package owner
