// Package cassandra is the store that instances share: events, counters and resets
// in Apache Cassandra's tables. It also brings the schema up to date, measures this
// instance's clock against the cluster's, and sweeps expired counters.
//
// gocql is used here and nowhere else. The package knows how things are stored,
// read and expire, and nothing of policies or algorithms; it never sees an
// identifier, only limiter.Key.
package cassandra
