package cassandra

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/schema"
)

const (
	migrateTimeout   = 30 * time.Second       // of one statement: schema changes wait for all nodes
	lockTTL          = 4 * time.Minute        // of the migration lock: longer than a statement and what is waited for nodes to agree
	keyspacePatience = 10 * time.Second       // until a keyspace that is there can be used
	lockRetry        = 100 * time.Millisecond // between tries to take it
	lockTries        = 10                     // of which each fails before it is given up, as when the version is read
)

// Migrate creates the keyspace if it is not there, and brings its tables up to
// date. Instances that migrate at the same time take turns. It logs whom it waits for, goes on
// without nodes that do not answer, and returns a Mistake where waiting does not help.
func Migrate(ctx context.Context, config Config) error {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return err
	}
	config.Timeout = migrateTimeout
	cl, ring := config.migrating()
	session, err := connect(ctx, cl)
	if err != nil {
		return fmt.Errorf("connecting to Cassandra: %w", err)
	}
	defer session.Close()
	nodes, ctx, err := newAgreement(ctx, &config, session, ring)
	if err != nil {
		return fmt.Errorf("connecting to Cassandra: %w", err)
	}
	return judged(migrate(ctx, &config, nodes))
}

// migrating returns the settings of a session that changes the schema. It does not wait for
// nodes to agree: an agreement does, and says for which.
func (c *Config) migrating() (*gocql.ClusterConfig, *pinnable) {
	cl, nodes := c.cluster("")
	cl.MaxWaitSchemaAgreement = time.Nanosecond
	return cl, nodes
}

// migrate is Migrate by requests to the node that ctx pins.
func migrate(ctx context.Context, config *Config, nodes *agreement) error {
	if err := createKeyspace(ctx, config, nodes); err != nil {
		return err
	}
	session, err := connectTo(ctx, config, nodes.lead)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := checkPatiently(ctx, config, session); !IsMistake(err) {
		return err // with nothing to do, a user who may not create tables can migrate, too
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
	held, err := lock(ctx, config, session, "migrate")
	if err != nil {
		return err
	}
	defer held.release(ctx)
	return applyMigrations(ctx, config, session, nodes, held)
}

// checkPatiently is checkSchema, which fails while a node that was cut off is asked for tables
// that it does not know yet.
func checkPatiently(ctx context.Context, config *Config, session *gocql.Session) error {
	for tries := 1; ; tries++ {
		err := checkSchema(ctx, config, session)
		if err == nil || IsMistake(err) || tries == lockTries || wait(ctx, reconnectInterval) != nil {
			return err
		}
	}
}

// connectTo starts a session in the keyspace, by lead. One that another instance has just
// created may be in the catalogue of a node some moments before it can be used.
func connectTo(ctx context.Context, config *Config, lead *gocql.HostInfo) (*gocql.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, keyspacePatience)
	defer cancel()
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for {
		cl, _ := config.migrating()
		cl.Keyspace, cl.Hosts = config.Keyspace, []string{addressOf(lead)}
		session, err := connect(ctx, cl)
		if err == nil {
			if err = session.Query("SELECT key FROM system.local").WithContext(ctx).Consistency(gocql.One).Exec(); err == nil {
				return session, nil
			}
			session.Close() // it has no connection to the node that coordinates
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connecting to keyspace %q: %w", config.Keyspace, err)
		case <-tick.C:
		}
	}
}

// createKeyspace also warns of a keyspace that keeps one copy only.
func createKeyspace(ctx context.Context, config *Config, nodes *agreement) error {
	found, err := findKeyspace(ctx, config, nodes.session, nodes.nodes)
	if err == nil && !found {
		err = createKeyspaceWith(ctx, config, nodes)
	}
	if err != nil {
		return err
	}
	return warnOfOneCopy(ctx, config, nodes.session)
}

func createKeyspaceWith(ctx context.Context, config *Config, nodes *agreement) error {
	replication := config.Replication
	if replication == "" {
		replication = nodes.nodes.topology().replication()
	}
	if !strings.HasPrefix(replication, "{") || !strings.HasSuffix(replication, "}") || strings.Contains(replication, ";") {
		return &Mistake{fmt.Errorf("cassandra-replication: %q is no CQL map: use {'class': 'NetworkTopologyStrategy', 'dc1': 3}", replication)}
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

func warnOfOneCopy(ctx context.Context, config *Config, session *gocql.Session) error {
	var replication map[string]string
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", config.Keyspace).
		WithContext(ctx).Consistency(gocql.One).Scan(&replication)
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

// createBookkeeping creates the tables that migrating itself needs. Nothing can
// guard this against another instance that does the same, so the tables' ids are
// derived from their names: creating one twice, by two nodes, is the same table.
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

// heldLock is a lease that this process holds until it releases it. It ends by itself,
// should the process die, lockTTL after it was taken or renewed.
type heldLock struct {
	session      *gocql.Session
	name, holder string
	asked        time.Time // when it was last asked for and had, at the latest
}

// lock waits until this process holds the lease called name, and logs that it does if it has to.
func lock(ctx context.Context, config *Config, session *gocql.Session, name string) (*heldLock, error) {
	l := &heldLock{session: session, name: name, holder: rand.Text()}
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for waits := false; ; waits = true {
		held, err := l.take(ctx)
		switch {
		case held:
			return l, nil
		case err != nil:
			l.release(ctx) // it may have it
			return nil, fmt.Errorf("taking the lock %q: %w", name, err)
		case !waits:
			config.Logger.Info("waiting for another instance's migration, or for the end of its lock if it died", "at most", lockTTL)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another instance's migration: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// take takes or renews the lease. Instances that compare and set at the same time may take
// each other's turn, which is an error to one that has the lease all the same: it is tried
// again.
func (l *heldLock) take(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	for range lockTries {
		asked := time.Now()
		held, err = takeLease(ctx, l.session, l.name, l.holder, lockTTL, gocql.Serial)
		if held {
			l.asked = asked
		}
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(lockRetry/2 + mathrand.N(lockRetry)):
		}
	}
	return held, err
}

// renew has the lease last for another lockTTL, and says if it has been somebody else's.
func (l *heldLock) renew(ctx context.Context) error {
	before := l.asked
	held, err := l.take(ctx)
	if err == nil && time.Since(before) >= lockTTL {
		held = false // others may have had it meanwhile
	}
	if err == nil && !held {
		err = errors.New("another instance has it, or had")
	}
	if err != nil {
		return fmt.Errorf("keeping the lock %q: %w", l.name, err)
	}
	return nil
}

func (l *heldLock) release(ctx context.Context) {
	releaseLease(ctx, l.session, l.name, l.holder, gocql.Serial)
}

// applyMigrations makes the tables what this binary needs, under a lock that each
// statement gets anew: any of them may take half a minute.
func applyMigrations(ctx context.Context, config *Config, session *gocql.Session, nodes *agreement, held *heldLock) error {
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
			if err := held.renew(ctx); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
			if err := session.Query(statement).WithContext(ctx).Exec(); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
		}
		if err := nodes.await(ctx); err != nil {
			return fmt.Errorf("migration %s: %w", m.Name, err)
		}
		if err := held.renew(ctx); err != nil { // who lost it may be about to say less than what others did
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

// schemaVersion returns the version that the tables are at and the oldest binary
// that can serve from them; zeros for an empty keyspace.
func schemaVersion(ctx context.Context, config *Config, session *gocql.Session) (version, oldestReader int, err error) {
	query := session.Query("SELECT version, oldest_reader FROM schema_version WHERE name = 'tables'")
	err = config.repeated(query.WithContext(ctx).Consistency(gocql.Quorum)).Scan(&version, &oldestReader)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, 0, fmt.Errorf("reading the schema's version: %w", err)
	}
	return version, oldestReader, nil
}

// checkSchema returns an error that says what to do if this binary cannot serve
// from the tables as they are: a Mistake, unless it could not be found out.
func checkSchema(ctx context.Context, config *Config, session *gocql.Session) error {
	migrations, err := schema.Migrations()
	if err != nil {
		return &Mistake{err}
	}
	newest := migrations[len(migrations)-1].Version
	version, oldestReader, err := schemaVersion(ctx, config, session)
	switch {
	case refusedForGood(err): // there is no such table, or it is not for this user
		return &Mistake{fmt.Errorf("%w: run `ratelimitd migrate`, or serve with --migrate", err)}
	case err != nil:
		return err
	case version < newest:
		return &Mistake{fmt.Errorf("the tables are at version %d, this binary needs %d: run `ratelimitd migrate`, or serve with --migrate",
			version, newest)}
	case oldestReader > newest:
		return &Mistake{fmt.Errorf("the tables are at version %d and need a binary of version %d or later, this one is %d: upgrade it",
			version, oldestReader, newest)}
	}
	return nil
}
