// Package limiter is the core of ratelimitd: the engine that decides.
//
// It reads the state of a key from a [store.Store], decides under a policy by the algorithms of package count, and
// writes admitted units. Package policy defines policies, and package keys makes the keys of identifiers.
//
// The core knows nothing of HTTP, of Cassandra, of files or of metrics, and imports only the
// standard library. It never holds an identifier longer than it takes to hash it.
package limiter
