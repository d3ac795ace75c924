// Package cassandratest gives tests a real Cassandra. Most tests share the node of Hosts; those that stop, pause or kill
// nodes start a Cluster of their own. Without a Cassandra, tests are skipped and say what to install; with CI=true in the
// environment they fail instead. They are also skipped under -short.
//
// The shared node is the one named by RATELIMITD_TEST_CASSANDRA_HOSTS, or one that the test binary starts, with Docker or
// else with Java (RATELIMITD_TEST_CASSANDRA=docker or java forces one). Clusters are always Java processes.
//
// It does not know the project's schema, nor rate limits: it names keyspaces, which tests create and fill.
package cassandratest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
)

// queryTimeout is for tests' own queries, which create and drop keyspaces on busy machines.
const queryTimeout = time.Minute

// shared is the node that the tests of this binary share.
var shared struct {
	once    sync.Once
	hosts   []string
	started *localcassandra.Running
	err     error
}

// Main runs the tests of a binary. Afterwards it stops the shared node if they started one, or else drops their common
// keyspace. Call it from TestMain. Without Main, the node still ends with the binary, but the binary does not wait for its
// end.
func Main(m *testing.M) {
	m.Run()
	if shared.started == nil {
		if common.name != "" {
			if err := drop(shared.hosts, common.name); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		return
	}
	if err := shared.started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the shared Cassandra:", err)
	}
}

// Hosts returns the addresses, host:port, of the Cassandra that this binary's tests share, starting it at the first call.
// Tests must not stop its nodes. They use keyspaces of their own, or keys of their own in the common one.
func Hosts(t testing.TB) []string {
	t.Helper()
	skipIfShort(t)
	shared.once.Do(func() { shared.hosts, shared.started, shared.err = share() })
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	return shared.hosts
}

// share finds the shared node or starts it.
func share() ([]string, *localcassandra.Running, error) {
	hosts, err := parseHosts(os.Getenv(localcassandra.EnvHosts))
	if err != nil || len(hosts) > 0 {
		return hosts, nil, err
	}
	mode, err := localcassandra.ParseMode(os.Getenv(localcassandra.EnvMode))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), localcassandra.StartTimeout)
	defer cancel()
	started, err := localcassandra.Start(ctx, localcassandra.Options{Mode: mode, Logf: logToStderr})
	if err != nil {
		return nil, nil, err
	}
	return started.Hosts(), started, nil
}

// parseHosts reads a comma-separated list of host[:port], and adds the port 9042 to hosts without one.
func parseHosts(list string) ([]string, error) {
	const defaultPort, portBits = "9042", 16
	var hosts []string
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		host, port, err := net.SplitHostPort(item)
		if err != nil {
			host, port = item, defaultPort
		}
		number, err := strconv.ParseUint(port, 10, portBits)
		if err != nil || number == 0 || host == "" || strings.ContainsAny(host, " /") {
			return nil, fmt.Errorf("%s: %q is not host or host:port", localcassandra.EnvHosts, item)
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, nil
}

// Session connects to the given hosts, or without hosts to the shared Cassandra, for a test's own queries at level QUORUM. It
// is closed when the test ends.
func Session(t testing.TB, hosts ...string) *gocql.Session {
	t.Helper()
	if len(hosts) == 0 {
		hosts = Hosts(t)
	}
	session, err := connect(hosts)
	if err != nil {
		t.Fatalf("connecting to %v: %v", hosts, err)
	}
	t.Cleanup(session.Close)
	return session
}

func connect(hosts []string) (*gocql.Session, error) {
	config := gocql.NewCluster(hosts...)
	if _, port, err := net.SplitHostPort(hosts[0]); err == nil {
		if number, err := strconv.Atoi(port); err == nil {
			config.Port = number // for the nodes that the driver discovers
		}
	}
	config.Consistency = gocql.Quorum
	config.Timeout = queryTimeout
	config.ConnectTimeout = queryTimeout
	config.Logger = log.New(io.Discard, "", 0) // it reports every node that a test stops
	return config.CreateSession()
}

// giveUp skips the test if Cassandra can't run here and is not required, and otherwise fails it.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, localcassandra.ErrUnavailable) || os.Getenv("CI") == "true" {
		t.Fatalf("starting Cassandra: %v", err)
	}
	t.Skipf("this test needs Cassandra, and %v", err)
}

func skipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs Cassandra, and -short skips such tests")
	}
}

func logToStderr(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cassandratest: "+format+"\n", args...)
}
