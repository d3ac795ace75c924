package serve_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const laterPolicies = `policies:
  - name: denies
    limits: [{algorithm: sliding-log, limit: 2, window: 1h}]
  - name: allows
    on_store_error: allow
    limits: [{algorithm: sliding-log, limit: 2, window: 1h}]
  - name: locals
    on_store_error: local
    limits: [{algorithm: sliding-log, limit: 2, window: 1h}]
  - name: buckets
    limits: [{algorithm: token-bucket, limit: 2, window: 24h}]
`

// takes expects these statuses of takes of the same caller, one after the other.
func (s *server) takes(t *testing.T, policy string, want ...int) {
	t.Helper()
	for i := range want {
		if got := s.Take(t, policy); got != want[i] {
			t.Errorf("%s, take %d: status %d, want %d", policy, i+1, got, want[i])
		}
	}
}

// waitReady returns when readyz is 200.
func (s *server) waitReady(t *testing.T) {
	t.Helper()
	again, late := time.NewTicker(10*time.Millisecond), time.After(clitest.Patience)
	defer again.Stop()
	for s.Get(t, "/readyz") != http.StatusOK {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not ready within %v:\n%s", clitest.Patience, s.Log)
		}
	}
}

// A serve that can't reach Cassandra starts, decides as policies say, and counts together with
// others once it can: nobody told it the name of the data centre, which is part of the keys.
func TestServeStartsBeforeCassandra(t *testing.T) {
	door := cassandratest.NewDoor(t)
	keyspace := cassandratest.Keyspace(t)
	flags := []string{
		"--store=cassandra", "--cassandra-keyspace=" + keyspace, "--store-timeout=5s",
		"--policies=" + clitest.Write(t, "policies.yaml", laterPolicies),
	}
	s := start(t, nil, append(flags, "--cassandra-hosts="+door.Addr(), "--migrate")...)
	if got := s.Body(t, "/readyz"); !strings.Contains(got, "has not been reached since the start") || strings.Contains(got, door.Addr()) {
		t.Errorf("readyz says %s", got)
	}
	if got := s.Get(t, "/healthz"); got != http.StatusOK {
		t.Errorf("healthz: %d", got)
	}
	const ok, limited, gone = http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable
	var all sync.WaitGroup // each call waits for the owner of its key, as long as a store may take
	for policy, want := range map[string][]int{
		"denies": {gone, gone, gone}, "buckets": {gone, gone, gone}, "allows": {ok, ok, ok}, "locals": {ok, ok, limited},
	} {
		all.Go(func() { s.takes(t, policy, want...) })
	}
	all.Wait()
	if got := s.Get(t, "/readyz"); got != gone {
		t.Errorf("readyz: %d", got)
	}
	door.Open()
	s.Log.WaitFor(t, "connected to Cassandra", 1)
	s.waitReady(t)
	other := start(t, nil, append(flags, "--cassandra-hosts="+strings.Join(cassandratest.Hosts(t), ","))...)
	for _, policy := range []string{"denies", "buckets", "allows", "locals"} {
		s.takes(t, policy, ok, ok, limited)
		other.takes(t, policy, limited)
	}
	if n := strings.Count(s.Log.String(), "waiting for Cassandra"); n != 1 {
		t.Errorf("it is logged %d times what is waited for, want once:\n%s", n, s.Log)
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.Log)
	}
}

// Mistakes that a person must mend end serve, at the start and when Cassandra is reached later.
func TestServeEndsWhereAPersonMustMend(t *testing.T) {
	hosts := strings.Join(cassandratest.Hosts(t), ",")
	keyspace := cassandratest.CommonKeyspace(t)
	if code, _, stderr := clitest.Execute(t, nil, "migrate", "--cassandra-hosts="+hosts,
		"--cassandra-keyspace="+keyspace); code != command.ExitOK {
		t.Fatal(stderr)
	}
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"no keyspace":    {[]string{"--cassandra-keyspace=t_that_is_not_there"}, "has `ratelimitd migrate` been run?"},
		"no data centre": {[]string{"--cassandra-keyspace=" + keyspace, "--cassandra-datacenter=atlantis"}, `no "atlantis", it has`},
	} {
		t.Run(name, func(t *testing.T) {
			flags := append([]string{"--store=cassandra", "--store-timeout=5s"}, test.flags...)
			code, stdout, stderr := clitest.Execute(t, nil, append([]string{"serve", "--cassandra-hosts=" + hosts}, flags...)...)
			if code != command.ExitFailure || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, output %q, errors:\n%s", code, stdout, stderr)
			}
			door := cassandratest.NewDoor(t)
			s := start(t, nil, append(flags, "--cassandra-hosts="+door.Addr())...)
			door.Open()
			if code := s.Wait(t); code != command.ExitFailure || !strings.Contains(s.Log.String(), test.want) {
				t.Errorf("later: exit code %d\n%s", code, s.Log)
			}
		})
	}
}

// A serve that waits for a node which stands still ends when it is told to.
func TestServeThatWaitsCanBeStopped(t *testing.T) {
	const soon = 4 * time.Second // less than an attempt to connect lasts
	for tries := 1; ; tries++ {  // a busy machine may be late, but hardly each time
		door := cassandratest.NewDoor(t)
		s := start(t, nil, "--store=cassandra", "--cassandra-hosts="+door.Addr())
		door.Stall()
		<-door.Came()
		began := time.Now()
		s.Stop()
		if code, took := s.Wait(t), time.Since(began); code != command.ExitOK || took > soon && tries == 3 {
			t.Fatalf("exit code %d after %v\n%s", code, took, s.Log)
		} else if took <= soon {
			return
		}
	}
}
