package cassandratest_test

import (
	"regexp"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// Two tests of a binary use the same node, but not each other's keyspaces.
func TestSharedNode(t *testing.T) {
	session := cassandratest.Session(t)
	var first string
	t.Run("a keyspace of its own", func(t *testing.T) {
		first = cassandratest.Keyspace(t)
		create := `CREATE KEYSPACE ` + first + ` WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`
		if err := session.Query(create).Exec(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("which is dropped", func(t *testing.T) {
		var found int
		query := `SELECT COUNT(*) FROM system_schema.keyspaces WHERE keyspace_name = ?`
		if err := session.Query(query, first).Scan(&found); err != nil {
			t.Fatal(err)
		}
		if found != 0 {
			t.Errorf("keyspace %s is still there after its test", first)
		}
	})
}

func TestCommonKeyspaceIsOneForAll(t *testing.T) {
	first, second := cassandratest.CommonKeyspace(t), ""
	t.Run("another test", func(t *testing.T) { second = cassandratest.CommonKeyspace(t) })
	if first != second || first == cassandratest.Keyspace(t) {
		t.Errorf("%q and %q, want one common keyspace", first, second)
	}
}

func TestKeyspaceNameIsUniqueAndValid(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	seen := map[string]bool{}
	for _, name := range []string{"short", "Ünïcode/ and marks; DROP", "a name that is too long by far to be that of a keyspace"} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				keyspace := cassandratest.KeyspaceName(t)
				if !valid.MatchString(keyspace) {
					t.Errorf("KeyspaceName = %q, which is not a valid name", keyspace)
				}
				if seen[keyspace] {
					t.Errorf("KeyspaceName = %q twice", keyspace)
				}
				seen[keyspace] = true
			}
		})
	}
}
