// Package keys makes of an identifier the key that it is counted under: a hash, so that no
// identifier gets any further.
package keys
