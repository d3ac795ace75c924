package cassandra_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// awayPatience is for what takes some seconds while a node is away. The driver alone took 122 s to
// say that schemas differ.
const awayPatience = 100 * time.Second

// testOneOfThreeNodesIsAway migrates, and begins to serve, while a node stands still and while
// one is dead.
func testOneOfThreeNodesIsAway(t *testing.T, cluster *cassandratest.Cluster) {
	for _, away := range []struct {
		name       string
		node       *cassandratest.Node
		begin, end func()
	}{
		{"paused", cluster.Node(1), cluster.Node(1).Pause, cluster.Node(1).Resume},
		{"killed", cluster.Node(2), cluster.Node(2).Kill, cluster.Node(2).Start},
	} {
		t.Run(away.name, func(t *testing.T) {
			var log lockedLog
			config := cassandra.Config{
				Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}
			away.begin()
			began := time.Now()
			if err := cassandra.Migrate(t.Context(), config); err != nil {
				t.Errorf("migrating: %v", err)
			}
			if took := time.Since(began); took > awayPatience {
				t.Errorf("migrating took %v", took)
			}
			t.Logf("migrated within %v", time.Since(began).Round(time.Millisecond))
			for _, want := range []string{"waiting for the nodes to agree", "no answer from " + away.node.Addr(), "going on without nodes"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("nothing of %q in the log:\n%s", want, log.String())
				}
			}
			began = time.Now()
			store := openLater(t, config)
			runWhile(t, store)
			waitReady(t, store)
			t.Logf("ready within %v", time.Since(began).Round(time.Millisecond))
			away.end()
			cluster.WaitUp()
			waitTable(t, away.node, config.Keyspace)
			if err := cassandra.Migrate(t.Context(), config); err != nil {
				t.Errorf("migrating again: %v", err)
			}
		})
	}
}

// waitTable returns when a node knows a table of the keyspace.
func waitTable(t *testing.T, node *cassandratest.Node, keyspace string) {
	t.Helper()
	host, _, err := net.SplitHostPort(node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	only := gocql.NewCluster(node.Addr())
	only.HostFilter, only.Timeout = gocql.WhiteListHostFilter(host), awayPatience
	session, err := only.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		err := session.Query("SELECT * FROM " + keyspace + ".changes").Exec()
		if err == nil {
			return
		}
		if time.Since(start) > awayPatience {
			t.Fatalf("%s does not know the tables within %v: %v", node.Addr(), awayPatience, err)
		}
	}
}

// openLater returns a store that runWhile connects, unless it is connected already.
func openLater(t *testing.T, config cassandra.Config) *cassandra.Later {
	t.Helper()
	store, err := cassandra.OpenLater(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// waitReady returns when the store answers.
func waitReady(t *testing.T, store *cassandra.Later) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		err := store.Ready(t.Context())
		if err == nil {
			return
		}
		if time.Since(start) > awayPatience {
			t.Fatalf("not ready within %v: %v", awayPatience, err)
		}
	}
}

// runWhile runs store until the test ends, and closes it then.
func runWhile(t *testing.T, store *cassandra.Later) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ran sync.WaitGroup
	ran.Go(func() {
		if err := store.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ran.Wait()
		store.Close()
	})
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p.
func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written.
func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
