// Package migrate creates the keyspace and brings its tables up to date. Any number of instances may do that at the same
// time: they take turns, and the nodes that answer agree on each change.
//
// It knows the files in schema/, but not the contents of the tables.
package migrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/lease"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/schema"
)

const (
	migrateTimeout   = 30 * time.Second       // timeout of one statement, as schema changes wait for all nodes
	lockTTL          = 4 * time.Minute        // longer than a statement and the wait for nodes to agree
	keyspacePatience = 10 * time.Second       // the longest wait until an existing keyspace can be used
	connectRetry     = 100 * time.Millisecond // interval of attempts to use such a keyspace
	checkTries       = 10                     // attempts to read the version
)

// Run creates the keyspace if it does not exist, and brings its tables up to date. Instances that do so at the same time take
// turns. Run logs that it waits for another instance, goes on without nodes that do not answer, and returns a Mistake if
// waiting does not help.
func Run(ctx context.Context, config conn.Config) error {
	config = config.WithDefaults()
	if err := config.Check(); err != nil {
		return err
	}
	config.Timeout = migrateTimeout
	cl, ring := settings(&config)
	session, err := conn.Connect(ctx, cl)
	if err != nil {
		return fmt.Errorf("connecting to Cassandra: %w", err)
	}
	defer session.Close()
	nodes, ctx, err := newAgreement(ctx, &config, session, ring)
	if err != nil {
		return fmt.Errorf("connecting to Cassandra: %w", err)
	}
	return conn.Judged(migrate(ctx, &config, nodes))
}

// settings returns the settings of a session that changes the schema. The session does not wait for nodes to agree, as an
// agreement does so, and logs the nodes.
func settings(config *conn.Config) (*gocql.ClusterConfig, *conn.Nodes) {
	cl, nodes := config.Settings("")
	cl.MaxWaitSchemaAgreement = time.Nanosecond
	return cl, nodes
}

// migrate does the work of Run, with all requests to the node that ctx pins.
func migrate(ctx context.Context, config *conn.Config, nodes *agreement) error {
	if err := createKeyspace(ctx, config, nodes); err != nil {
		return err
	}
	session, err := connectTo(ctx, config, nodes.lead)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := warnOfOneCopy(ctx, config, nodes.session); err != nil {
		return err
	}
	if err := checkPatiently(ctx, config, session); !conn.IsMistake(err) {
		return err // before anything is created, as a user without that right can run migrations that have nothing to do
	}
	if err := nodes.await(ctx); err != nil {
		return err
	}
	if err := createBookkeeping(ctx, session, config.Keyspace); err != nil {
		return err
	}
	if err := nodes.await(ctx); err != nil {
		return err
	}
	held, err := takeLock(ctx, config, session)
	if err != nil {
		return err
	}
	defer held.Release(ctx)
	return applyMigrations(ctx, config, session, nodes, held)
}

// checkPatiently repeats Check, which fails while a node that was cut off does not know the tables.
func checkPatiently(ctx context.Context, config *conn.Config, session *gocql.Session) error {
	for tries := 1; ; tries++ {
		err := Check(ctx, config, session)
		if err == nil || conn.IsMistake(err) || tries == checkTries || clock.Pause(ctx, conn.ReconnectInterval) != nil {
			return err
		}
	}
}

// connectTo starts a session in the keyspace, by the node lead. It tries again, because a keyspace that another instance has just
// created may be in a node's catalogue some moments before it can be used.
func connectTo(ctx context.Context, config *conn.Config, lead *gocql.HostInfo) (*gocql.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, keyspacePatience)
	defer cancel()
	tick := time.NewTicker(connectRetry)
	defer tick.Stop()
	for {
		cl, _ := settings(config)
		cl.Keyspace, cl.Hosts = config.Keyspace, []string{addressOf(lead)}
		session, err := conn.Connect(ctx, cl)
		if err == nil {
			if err = session.Query("SELECT key FROM system.local").WithContext(ctx).Consistency(gocql.One).Exec(); err == nil {
				return session, nil
			}
			session.Close() // the session has no connection to the coordinating node
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connecting to keyspace %q: %w", config.Keyspace, err)
		case <-tick.C:
		}
	}
}

// createKeyspace creates the keyspace if it does not exist.
func createKeyspace(ctx context.Context, config *conn.Config, nodes *agreement) error {
	found, err := conn.FindKeyspace(ctx, config, nodes.session, nodes.nodes)
	if err != nil || found {
		return err
	}
	return createKeyspaceWith(ctx, config, nodes)
}

func createKeyspaceWith(ctx context.Context, config *conn.Config, nodes *agreement) error {
	replication := config.Replication
	if replication == "" {
		replication = nodes.nodes.Topology().Replication()
	}
	if !strings.HasPrefix(replication, "{") || !strings.HasSuffix(replication, "}") || strings.Contains(replication, ";") {
		return conn.Mistakef("cassandra-replication: %q is not a CQL map: use {'class': 'NetworkTopologyStrategy', 'dc1': 3}", replication)
	}
	if err := nodes.await(ctx); err != nil {
		return err
	}
	statement := fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", config.Keyspace, replication)
	if err := nodes.session.Query(statement).WithContext(ctx).Exec(); err != nil {
		return fmt.Errorf("creating keyspace %q with replication %s: %w", config.Keyspace, replication, err)
	}
	return nil
}

// warnOfOneCopy warns of a keyspace with a single copy.
func warnOfOneCopy(ctx context.Context, config *conn.Config, session *gocql.Session) error {
	replication, err := readReplication(ctx, config, session)
	if err != nil {
		return fmt.Errorf("reading the replication of keyspace %q: %w", config.Keyspace, err)
	}
	for where, factor := range replication {
		if factor == "1" {
			config.Logger.Warn("the keyspace keeps one copy: counts are lost with a node, and none can be read while it is down",
				"keyspace", config.Keyspace, "replication", where+"=1")
		}
	}
	return nil
}

// readReplication reads the keyspace's replication. It tries again, because a keyspace that another instance creates at the
// same time can be used some moments before the node's catalogue has it.
func readReplication(ctx context.Context, config *conn.Config, session *gocql.Session) (replication map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, keyspacePatience)
	defer cancel()
	for {
		err = session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", config.Keyspace).
			WithContext(ctx).Consistency(gocql.One).Scan(&replication)
		if !errors.Is(err, gocql.ErrNotFound) || clock.Pause(ctx, connectRetry) != nil {
			return replication, err
		}
	}
}

// createBookkeeping creates the tables that migrations themselves need. No lock can guard this yet, so the tables' ids are
// derived from their names. If two instances create a table by two nodes, it is the same table.
func createBookkeeping(ctx context.Context, session *gocql.Session, keyspace string) error {
	for _, table := range []struct{ name, columns string }{
		{"leases", "(name text PRIMARY KEY, holder text)"},
		{"schema_version", "(name text PRIMARY KEY, version int, oldest_reader int)"},
	} {
		statement := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s %s WITH ID = %s", table.name, table.columns, tableID(keyspace, table.name))
		if err := session.Query(statement).WithContext(ctx).Exec(); err != nil {
			return fmt.Errorf("creating table %s: %w", table.name, err)
		}
	}
	return nil
}

// tableID derives a version 8 UUID (RFC 9562) from a table's name.
func tableID(keyspace, table string) gocql.UUID {
	sum := sha256.Sum256([]byte("ratelimitd " + keyspace + "." + table))
	var id gocql.UUID
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// applyMigrations brings the tables to this binary's version, under a lock that it renews before each statement, any of
// which may take half a minute.
func applyMigrations(ctx context.Context, config *conn.Config, session *gocql.Session, nodes *agreement, held *lease.Lock) error {
	migrations, err := schema.Migrations()
	if err != nil {
		return err
	}
	version, _, err := schemaVersion(ctx, config, session)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if m.Version <= version {
			continue
		}
		config.Logger.Info("migrating", "keyspace", config.Keyspace, "to", m.Name)
		for _, statement := range m.Statements {
			if err := held.Renew(ctx); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
			if err := session.Query(statement).WithContext(ctx).Exec(); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
		}
		if err := nodes.await(ctx); err != nil {
			return fmt.Errorf("migration %s: %w", m.Name, err)
		}
		if err := held.Renew(ctx); err != nil { // without the lock, others may have noted a later version
			return fmt.Errorf("migration %s: noting its version: %w", m.Name, err)
		}
		err := session.Query("INSERT INTO schema_version (name, version, oldest_reader) VALUES ('tables', ?, ?)", m.Version, schema.OldestReader).
			WithContext(ctx).Consistency(gocql.Quorum).Exec()
		if err != nil {
			return fmt.Errorf("migration %s: noting its version: %w", m.Name, err)
		}
	}
	return nil
}

// takeLock takes the lock for migrations. If it has to wait, it logs that.
func takeLock(ctx context.Context, config *conn.Config, session *gocql.Session) (*lease.Lock, error) {
	return lease.Wait(ctx, session, "migrate", lockTTL, migrateTimeout, func() {
		config.Logger.Info("waiting for another instance's migration, or for the end of its lock if it died", "at most", lockTTL)
	})
}
