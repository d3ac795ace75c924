// Package limiter is the core of ratelimitd: what a policy is, how each
// algorithm counts, and the engine that decides.
//
// The algorithms are pure functions of a limit, the state of one key, an instant
// and a cost; one file and one row of a table each. The engine gathers the state
// from a [Store], lets the algorithms judge it, and writes what was admitted.
//
// The package knows nothing of HTTP, of Cassandra, of files or of metrics, and
// imports only the standard library. It never holds an identifier longer than it
// takes to hash it into a [Key].
package limiter
