package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestReadyIsAMember starts three servers: each is ready when it is one of those that decide, and not before.
func TestReadyIsAMember(t *testing.T) {
	flags := onCassandra(t, "--peer-listen=127.0.0.1:0")
	for members := range 3 {
		s := start(t, nil, flags...)
		s.waitReady(t)
		if want := fmt.Sprintf("\nratelimitd_members %d\n", members+1); !strings.Contains(s.Body(t, "/metrics"), want) {
			t.Errorf("ready before it is one of %d", members+1)
		}
	}
}

// Two servers on one keyspace, which migrate makes, count together.
func TestServersShareCassandra(t *testing.T) {
	hosts := strings.Join(cassandratest.Hosts(t), ",")
	keyspace := cassandratest.Keyspace(t)
	flags := []string{"--cassandra-hosts=" + hosts, "--cassandra-keyspace=" + keyspace}
	environ := []string{"RATELIMITD_STORE=cassandra", "RATELIMITD_STORE_TIMEOUT=5s"}
	code, stdout, stderr := clitest.Execute(t, environ, append([]string{"migrate"}, flags...)...)
	if code != command.ExitOK || stdout != "keyspace "+keyspace+" is up to date\n" {
		t.Fatalf("migrate: exit code %d, output %q, errors:\n%s", code, stdout, stderr)
	}
	first := start(t, environ, flags...)
	second := start(t, environ, append(flags, "--migrate", "--accept-caveats=replication_factor")...) // finds all in place
	for i := range 6 {
		s, want := first, http.StatusOK
		if i%2 == 1 {
			s = second
		}
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if got := s.Take(t, "login"); got != want {
			t.Errorf("take %d: status %d, want %d\n%s", i+1, got, want, s.Log)
		}
	}
	second.waitReady(t)
	if !strings.Contains(first.Log.String(), "consistency: LOCAL_QUORUM holds the limit within each data centre") {
		t.Errorf("nothing of the default levels in the log:\n%s", first.Log)
	}
	for _, caveat := range []string{
		`true",caveat="replication_factor"} 1`, `false",caveat="commitlog_sync"} `, `false",caveat="node_clocks"} 0`,
	} {
		second.WaitForMetric(t, `ratelimitd_cluster_caveat{accepted="`+caveat) // of one node
	}
	first.WaitForMetric(t, `ratelimitd_cluster_caveat{accepted="false",caveat="replication_factor"} 1`)
	problems, err := promlint.New(strings.NewReader(second.Body(t, "/metrics"))).Lint() // as promtool check metrics does
	if err != nil || len(problems) > 0 {
		t.Errorf("all metrics of a server: %v %v", problems, err)
	}
	first.Log.WaitFor(t, `level=WARN msg="cluster: the keyspace has one copy (datacenter1 = 1)`, 1)
	second.Log.WaitFor(t, `level=INFO msg="cluster: the keyspace has one copy (datacenter1 = 1)`, 1)
	for _, s := range []*server{first, second} {
		s.Stop()
		if code := s.Wait(t); code != command.ExitOK {
			t.Errorf("exit code %d\n%s", code, s.Log)
		}
	}
}

func TestNoToleranceIsRefused(t *testing.T) {
	code, _, stderr := clitest.Execute(t, nil, "serve", "--store=cassandra", "--cassandra-hosts=127.0.0.1:1", "--clock-tolerance=0s")
	if code != command.ExitUsage || !strings.Contains(stderr, "--clock-tolerance: ") || !strings.Contains(stderr, "1ms to 1m0s") {
		t.Errorf("exit code %d, errors:\n%s", code, stderr)
	}
}
