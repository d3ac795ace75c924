// Package owner defines terms, by which an instance counts for a key, the errors of an instance that has no term, and the
// operations of an owner besides decisions. Packages internal/cluster and internal/peer implement terms.
package owner
