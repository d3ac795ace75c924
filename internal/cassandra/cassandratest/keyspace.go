package cassandratest

import (
	"crypto/rand"
	"strings"
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
		session, err := connect(hosts)
		if err != nil {
			t.Logf("connecting to %v to drop keyspace %s: %v", hosts, name, err)
			return
		}
		defer session.Close()
		if err := session.Query("DROP KEYSPACE IF EXISTS " + name).Exec(); err != nil {
			t.Logf("dropping keyspace %s: %v", name, err)
		}
	})
	return name
}

// KeyspaceName returns a name that no other test has, made from the test's own, and nothing more: for a Cluster, whose
// keyspaces go with it.
func KeyspaceName(t testing.TB) string {
	unique := strings.ToLower(rand.Text()[:uniqueLetters])
	readable := "t_" + strings.Map(wordOnly, strings.ToLower(t.Name()))
	return readable[:min(len(readable), maxKeyspaceName-1-uniqueLetters)] + "_" + unique
}

// wordOnly maps what a keyspace's name cannot hold to an underscore.
func wordOnly(r rune) rune {
	if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
		return r
	}
	return '_'
}
