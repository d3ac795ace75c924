// Package limiter is the core of ratelimitd: the engine that decides.
//
// It reads the state of a key from a [store.Store], decides under a policy by the algorithms of package count, and
// writes admitted units. Package policy defines policies, and package keys makes the keys of identifiers.
//
// The core does not depend on HTTP, Cassandra, files or metrics, and imports only the standard library. It keeps an
// identifier only until it has hashed it.
package limiter
