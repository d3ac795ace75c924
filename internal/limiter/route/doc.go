// Package route routes charges to the owners of their keys: this instance, if it has the term, or the peer that has it.
// Several demands are prepared by the owners of all their keys, then committed or aborted.
package route
