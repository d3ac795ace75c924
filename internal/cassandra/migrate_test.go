package cassandra_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

func TestInstancesThatMigrateAtTheSameTime(t *testing.T) {
	config := newConfig(t)
	var log bytes.Buffer
	var mu sync.Mutex
	config.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := cassandra.Migrate(t.Context(), config); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, file := range []string{"0001_counts.cql", "0002_cells.cql"} {
		if n := strings.Count(log.String(), "to="+file); n != 1 {
			t.Errorf("%s migrated %d times, want once:\n%s", file, n, log.String())
		}
	}
	if !strings.Contains(log.String(), "keeps one copy") {
		t.Errorf("no warning of a single copy:\n%s", log.String())
	}
	store, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// lockedWriter lets several goroutines log into one buffer.
type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

// Write appends p.
func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// TestMigrationsCanBeRepeated has an instance die before it noted what it did, so that
// the next one does it all again.
func TestMigrationsCanBeRepeated(t *testing.T) {
	config := newConfig(t)
	for range 2 {
		if err := cassandra.Migrate(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		session := cassandratest.Session(t, config.Hosts...)
		if err := session.Query("DELETE FROM " + config.Keyspace + ".schema_version WHERE name = 'tables'").Exec(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTablesThatThisBinaryCannotServeFrom(t *testing.T) {
	config := newConfig(t)
	refused := func(t *testing.T, sentence string) {
		t.Helper()
		store, err := cassandra.Open(t.Context(), config)
		if err == nil {
			store.Close()
			t.Fatal("opened")
		}
		if !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v, want a word of %q", err, sentence)
		}
	}
	t.Run("no keyspace", func(t *testing.T) { refused(t, "has `ratelimitd migrate` been run?") })
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	session := cassandratest.Session(t, config.Hosts...)
	set := func(t *testing.T, version, oldestReader int) {
		t.Helper()
		err := session.Query("INSERT INTO "+config.Keyspace+".schema_version (name, version, oldest_reader) VALUES ('tables', ?, ?)",
			version, oldestReader).Exec()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("older", func(t *testing.T) { set(t, 0, 0); refused(t, "run `ratelimitd migrate`") })
	t.Run("newer, for newer binaries only", func(t *testing.T) { set(t, 99, 98); refused(t, "upgrade it") })
	t.Run("newer, for older binaries too", func(t *testing.T) {
		set(t, 99, 1)
		store, err := cassandra.Open(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
	})
}

func TestDatacenterThatIsNotThere(t *testing.T) {
	config := newConfig(t)
	config.Datacenter = "atlantis"
	_, err := cassandra.Open(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), `no "atlantis", it has`) {
		t.Errorf("%v", err)
	}
}
