package policies_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/policies"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/policystore/policystoretest"
)

func TestMain(m *testing.M) { cassandratest.Main(m) }

// newStore returns a store of a keyspace of its own, and the session to it.
func newStore(t *testing.T) (*policies.Store, *gocql.Session) {
	t.Helper()
	config := cassandra.Config{Hosts: cassandratest.Hosts(t), Keyspace: cassandratest.Keyspace(t), Timeout: 5 * time.Second}
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	cluster := gocql.NewCluster(config.Hosts...)
	cluster.Keyspace, cluster.Timeout = config.Keyspace, 30*time.Second // tables are dropped
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	settings := conn.Config{Timeout: config.Timeout}
	return policies.New("shop", func() (*gocql.Session, *conn.Config, error) { return session, &settings, nil }), session
}

func TestStore(t *testing.T) {
	store, session := newStore(t)
	policystoretest.Run(t, store)
	texts := make(map[gocql.UUID]bool)
	rows := session.Query("SELECT DISTINCT namespace, id FROM policies").Iter()
	var namespace string
	var id gocql.UUID
	for rows.Scan(&namespace, &id) {
		texts[id] = true
	}
	if err := rows.Close(); err != nil || len(texts) != policystore.Kept {
		t.Errorf("%d texts are kept, %v, want those of %d versions", len(texts), err, policystore.Kept)
	}
}

// TestLostTables are told from a cluster that is away: waiting does not mend them.
func TestLostTables(t *testing.T) {
	store, session := newStore(t)
	exec := func(cql string) {
		t.Helper()
		if err := session.Query(cql).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	for number, text := range []string{"one", "two"} {
		if err := store.Put(t.Context(), int64(number), policystoretest.SetOf(int64(number)+1, text)); err != nil {
			t.Fatal(err)
		}
	}
	exec("TRUNCATE policies")
	if latest, err := store.Latest(t.Context()); latest != 2 || err != nil {
		t.Errorf("without texts the latest is %d, %v", latest, err)
	}
	if _, err := store.Read(t.Context(), 2); !errors.Is(err, policystore.ErrUnreadable) {
		t.Errorf("a text that is gone: %v", err)
	}
	if err := store.Put(t.Context(), 2, policystoretest.SetOf(3, "three")); err != nil {
		t.Fatal(err)
	}
	if set, err := store.Read(t.Context(), 3); err != nil || string(set.Text) != "three" {
		t.Errorf("after that: %q, %v", set.Text, err)
	}
	exec("UPDATE policy_versions SET history = 'nonsense' WHERE namespace = 'shop'")
	if _, err := store.Read(t.Context(), 3); !errors.Is(err, policystore.ErrUnreadable) {
		t.Errorf("a history that makes no sense: %v", err)
	}
	if err := store.Put(t.Context(), 3, policystoretest.SetOf(4, "four")); err != nil {
		t.Errorf("over a history that makes no sense: %v", err)
	}
	exec("TRUNCATE policy_versions")
	if latest, err := store.Latest(t.Context()); latest != 0 || err != nil {
		t.Errorf("without versions the latest is %d, %v", latest, err)
	}
	if err := store.Put(t.Context(), 0, policystoretest.SetOf(4, "four")); err != nil {
		t.Errorf("after that: %v", err)
	}
	exec("DROP TABLE policy_versions")
	if _, err := store.Latest(t.Context()); !errors.Is(err, policystore.ErrUnreadable) {
		t.Errorf("without the table: %v", err)
	}
}
