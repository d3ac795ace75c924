// Package cas decides by compare-and-set on a key's cell: buckets and conversions. It reads, decides, and writes on the
// condition that the cell has not changed meanwhile. After a write without an answer it reads whether it was stored.
package cas
