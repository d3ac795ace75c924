package serve_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// server is a service in this process.
type server struct{ *clitest.Server }

// onCassandra returns the flags of instances that count together, and with nobody else: in a namespace of their own of the
// keyspace that tests have in common.
func onCassandra(t testing.TB, more ...string) []string {
	t.Helper()
	return append([]string{
		"--store=cassandra", "--cassandra-hosts=" + strings.Join(cassandratest.Hosts(t), ","), "--migrate",
		"--cassandra-keyspace=" + cassandratest.CommonKeyspace(t), "--namespace=" + rand.Text(),
		"--store-timeout=5s", // what tests wait for is that a call is decided, on a machine that does much else
	}, more...)
}

// start runs serve with these flags on a free port.
func start(t testing.TB, environ []string, flags ...string) *server {
	t.Helper()
	return startCommand(t, "serve", environ, flags...)
}

// startCommand is start for a command that serves as serve does.
func startCommand(t testing.TB, command string, environ []string, flags ...string) *server {
	t.Helper()
	return &server{clitest.StartCommand(t, command, environ, flags...)}
}
