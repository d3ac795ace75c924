// Package cas decides by compare-and-set on a key's cell: buckets, and everything under the guarantee serial. It reads,
// judges, and writes on the condition that nobody wrote meanwhile; a write without an answer is looked into.
package cas
