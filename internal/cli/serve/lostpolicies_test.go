package serve_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// TestLostPoliciesStayInForce empties and drops the tables of policies: instances keep those that they have, and the
// next version comes into force on all of them.
func TestLostPoliciesStayInForce(t *testing.T) {
	hosts, keyspace := cassandratest.Hosts(t), cassandratest.Keyspace(t)
	flags := []string{
		"--store=cassandra", "--cassandra-hosts=" + strings.Join(hosts, ","), "--migrate", "--store-timeout=5s",
		"--cassandra-keyspace=" + keyspace,
	}
	first, second := start(t, nil, flags...), start(t, nil, flags...)
	session := cassandratest.Session(t, hosts...)
	exec := func(cql string) {
		t.Helper()
		if err := session.Query(strings.ReplaceAll(cql, "KS", keyspace)).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(s *server, name, version string, want int64) {
		t.Helper()
		if number, status := putPolicies(t, s.URL, policiesNamed(name), version); status != http.StatusOK || number != want {
			t.Fatalf("applying %s: version %d, status %d", name, number, status)
		}
		for _, s := range []*server{first, second} {
			s.Log.WaitFor(t, `added=`+name, 1)
		}
	}
	still := func(name string) {
		t.Helper()
		for _, s := range []*server{first, second} {
			if got := s.Take(t, name); got != http.StatusOK {
				t.Errorf("take under %s: status %d", name, got)
			}
			s.WaitForBody(t, "/readyz", `"status":"ready"`) // which it is not while a node takes seconds for a read
		}
	}
	apply(first, "one", `"0"`, 1)
	exec("TRUNCATE KS.policies")
	still("one")
	late := start(t, nil, flags...)
	late.Log.WaitFor(t, "its text is missing", 1)
	const gone = http.StatusServiceUnavailable
	if ready, take := late.Get(t, "/readyz"), late.Take(t, "one"); ready != gone || take != gone {
		t.Errorf("an instance that never had them: readyz %d, take %d", ready, take)
	}
	apply(second, "two", `"1"`, 2)
	late.waitReady(t)
	exec("TRUNCATE KS.policy_versions")
	still("two")
	apply(first, "three", "*", 3)
	exec("DROP TABLE KS.policy_versions")
	first.Log.WaitFor(t, "policies of the store can't be brought into force, those that are in force stay", 1)
	still("three")
	if _, status := putPolicies(t, first.URL, policiesNamed("four"), `"3"`); status < http.StatusInternalServerError {
		t.Errorf("applying to a store without the table: status %d", status)
	}
	still("three")
	first.WaitForBody(t, "/readyz", "the latest policies in the store are not in force here, version 3 is")
	for _, s := range []*server{first, second, late} {
		s.Stop()
		if code := s.Wait(t); code != 0 {
			t.Errorf("exit code %d\n%s", code, s.Log)
		}
	}
}

// TestPoliciesOfTheStoreNeedNoFile has an instance of a store without versions go by the examples.
func TestPoliciesOfTheStoreNeedNoFile(t *testing.T) {
	s := start(t, nil)
	s.Log.WaitFor(t, `from="the examples: there is no --policies, and no version in the store"`, 1)
	if _, status := putPolicies(t, s.URL, policiesNamed("one"), `"0"`); status != http.StatusOK {
		t.Errorf("applying: status %d", status)
	}
	s.Log.WaitFor(t, `from="the store, version 1"`, 1)
	if got := s.Take(t, "login"); got != http.StatusNotFound {
		t.Errorf("an example after that: status %d", got)
	}
	s.WaitForMetric(t, "ratelimitd_policies_version 1")
	if _, status := putPolicies(t, s.URL, "policies: [{name: one}]", `"1"`); status != http.StatusBadRequest {
		t.Errorf("a file with mistakes: status %d", status)
	}
	if got := s.Take(t, "one"); got != http.StatusOK {
		t.Errorf("after that: status %d", got)
	}
}

// TestPoliciesOfAStoreThatIsReachedLater are not known before: nobody is decided, and nobody should ask.
func TestPoliciesOfAStoreThatIsReachedLater(t *testing.T) {
	door := cassandratest.NewDoor(t)
	s := start(t, nil, "--store=cassandra", "--cassandra-keyspace="+cassandratest.CommonKeyspace(t), "--namespace="+rand.Text(),
		"--store-timeout=5s", "--migrate", "--cassandra-hosts="+door.Addr())
	const gone = http.StatusServiceUnavailable
	if take, ready := s.Take(t, "login"), s.Get(t, "/readyz"); take != gone || ready != gone {
		t.Errorf("before the store is reached: take %d, readyz %d", take, ready)
	}
	door.Open()
	s.waitReady(t)
	if got := s.Take(t, "login"); got != http.StatusOK {
		t.Errorf("under the examples: %d", got)
	}
	for _, line := range []string{"level=WARN msg=\"the examples decide", "`policies: /etc/", "`hash-key-file: /etc/"} {
		s.Log.WaitFor(t, line, 1)
	}
	if _, status := putPolicies(t, s.URL, policiesNamed("one"), `"0"`); status != http.StatusOK {
		t.Errorf("applying: %d", status)
	}
	if got := s.Take(t, "one"); got != http.StatusOK {
		t.Errorf("after that: %d", got)
	}
}
