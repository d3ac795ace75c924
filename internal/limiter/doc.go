// Package limiter is the core of ratelimitd: the engine that decides.
//
// It gathers what a [store.Store] has of a key, lets the algorithms of package count judge it
// under a policy, and writes what was admitted. Package policy says what a policy is, and
// package keys makes the key of an identifier.
//
// The core knows nothing of HTTP, of Cassandra, of files or of metrics, and imports only the
// standard library. It never holds an identifier longer than it takes to hash it.
package limiter
