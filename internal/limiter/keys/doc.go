// Package keys hashes identifiers to the keys under which they are counted, so that no identifier gets past it.
package keys
