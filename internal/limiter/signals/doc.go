// Package signals carries what one instance did to a key to all others, and keeps the blocks that
// come of it.
package signals
