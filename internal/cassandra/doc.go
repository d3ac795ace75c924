// Package cassandra is the store that instances share: events, counters and resets in Apache
// Cassandra's tables. It also measures this instance's clock against the cluster's, and sweeps
// expired counters.
//
// Package conn connects to the cluster and knows its nodes, migrate brings the tables up to date, and lease lets one
// process at a time do a task. This package defines how rows are written and read, and when they expire.
//
// No package outside internal/cassandra uses gocql. This package does not know policies or algorithms. It never sees an
// identifier, only store.Key.
package cassandra

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/migrate"
)

// Config has the cluster's addresses, and the settings of connections to it.
type Config = conn.Config

// Mistake is the reason why a cluster that answers can't be used until an operator fixes something.
type Mistake = conn.Mistake

// Defaults of a Config.
const (
	DefaultConnections = conn.DefaultConnections
	DefaultSweepAge    = conn.DefaultSweepAge
	DefaultSweepPause  = conn.DefaultSweepPause
)

// IsMistake reports whether err is, or wraps, a Mistake.
func IsMistake(err error) bool { return conn.IsMistake(err) }

// Migrate creates the keyspace if it does not exist, and brings its tables up to date. Instances that migrate at the
// same time take turns. It logs the instance for which it waits, goes on without nodes that do not answer, and returns
// a Mistake if waiting does not help.
func Migrate(ctx context.Context, config Config) error { return migrate.Run(ctx, config) }
