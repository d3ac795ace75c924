package cassandratest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
)

const (
	maxKeyspaceName = 48 // Cassandra's own limit
	uniqueLetters   = 10 // of base32: 2^50 names
)

// Keyspace returns a name that no other test has, for a keyspace on the shared Cassandra that the test will create. The
// keyspace is dropped when the test ends.
func Keyspace(t testing.TB) string {
	t.Helper()
	hosts := Hosts(t)
	name := KeyspaceName(t)
	t.Cleanup(func() {
		if err := drop(hosts, name); err != nil {
			t.Log(err)
		}
	})
	return name
}

// CommonKeyspace returns the name of a keyspace on the shared Cassandra that tests of this binary share, as creating one
// takes seconds. Each test must use keys or namespaces of its own. The first call creates it. Main drops it.
func CommonKeyspace(t testing.TB) string {
	t.Helper()
	Hosts(t)
	common.once.Do(func() { common.name = "t_common_" + strings.ToLower(rand.Text()[:uniqueLetters]) })
	return common.name
}

var common struct {
	once sync.Once
	name string // empty until a test asks for it
}

// drop removes a keyspace of the shared Cassandra.
func drop(hosts []string, keyspace string) error {
	session, err := connect(hosts)
	if err != nil {
		return fmt.Errorf("connecting to %v to drop keyspace %s: %w", hosts, keyspace, err)
	}
	defer session.Close()
	if err := session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec(); err != nil {
		return fmt.Errorf("dropping keyspace %s: %w", keyspace, err)
	}
	return nil
}

// KeyspaceName returns a keyspace name that no other test has, made from the test's own. It is never dropped: it is for a
// Cluster, whose keyspaces end with it.
func KeyspaceName(t testing.TB) string {
	unique := strings.ToLower(rand.Text()[:uniqueLetters])
	readable := "t_" + strings.Map(wordOnly, strings.ToLower(t.Name()))
	return readable[:min(len(readable), maxKeyspaceName-1-uniqueLetters)] + "_" + unique
}

// wordOnly replaces characters that a keyspace's name can't have by an underscore.
func wordOnly(r rune) rune {
	if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
		return r
	}
	return '_'
}
