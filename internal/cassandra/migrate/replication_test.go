package migrate

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
)

func TestMain(m *testing.M) { cassandratest.Main(m) }

// TestReplicationOfAKeyspaceThatIsBeingCreated reads that of a keyspace which is in no node's catalogue yet, as an instance does
// beside another one that creates it.
func TestReplicationOfAKeyspaceThatIsBeingCreated(t *testing.T) {
	config := conn.Config{Hosts: cassandratest.Hosts(t), Keyspace: cassandratest.Keyspace(t)}.WithDefaults()
	cluster, _ := settings(&config)
	cluster.Timeout, cluster.ConnectTimeout = 20*time.Second, 20*time.Second // a node that all tests share is busy
	session, err := conn.Connect(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var early map[string]string
	err = session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", config.Keyspace).Scan(&early)
	if !errors.Is(err, gocql.ErrNotFound) {
		t.Fatalf("the keyspace is there: %v %v", early, err)
	}
	type read struct {
		replication map[string]string
		err         error
	}
	done := make(chan read, 1)
	go func() {
		replication, err := readReplication(t.Context(), &config, session)
		done <- read{replication, err}
	}()
	select {
	case r := <-done:
		t.Fatalf("read before there is a keyspace: %v, %v", r.replication, r.err)
	default:
	}
	statement := "CREATE KEYSPACE " + config.Keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
	if err := session.Query(statement).Exec(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.replication["replication_factor"] != "1" {
		t.Errorf("%v, %v", r.replication, r.err)
	}
}
