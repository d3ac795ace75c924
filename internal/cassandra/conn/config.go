// Package conn connects to a Cassandra cluster. It has settings, sessions, the cluster's nodes and data centres, consistency
// levels, and the errors that an operator must fix.
//
// It does not know the tables.
package conn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Config has the cluster's addresses, and the settings of connections to it. Every field but Hosts and Keyspace has a usable
// zero value.
type Config struct {
	Hosts       []string    // host or host:port; at least one that answers
	Keyspace    string      // [a-z][a-z0-9_]{0,47}
	Datacenter  string      // the local data centre; empty: the cluster's, if it has only one
	Replication string      // a CQL map with which Migrate creates the keyspace; empty: NetworkTopologyStrategy, min(3, nodes)
	Username    string      // empty: no authentication
	Password    string      //
	TLS         *tls.Config // nil: plain text

	Timeout           time.Duration      // timeout of one request; zero: demand.DefaultStoreTimeout
	Consistency       policy.Consistency // for readiness and changes; zero: LOCAL_QUORUM
	SerialConsistency string             // LOCAL_SERIAL or SERIAL; empty: LOCAL_SERIAL
	UsesLocalLevels   bool               // a policy reads or writes at a LOCAL_ level: with several data centres, Datacenter is needed
	MigrateFirst      bool               // cassandra.OpenLater brings the tables up to date before it connects
	Connections       int                // number of connections to each node; zero: DefaultConnections

	ClockTolerance time.Duration // Skewed reports a clock beyond it; zero: it never does

	SweepAge   time.Duration // how long counters must have expired before they are deleted; zero: DefaultSweepAge
	SweepPause time.Duration // pause between slices of a sweep, which has 1024; zero: DefaultSweepPause

	Traced bool             // requests are parts of their calls' traces
	Logger *slog.Logger     // nil: logs nothing
	Now    func() time.Time // nil: time.Now
}

// DefaultConnections is the default of Connections. Each connection carries 32,768 requests at a time, and two keep both cores
// of a small machine busy.
const DefaultConnections = 2

// The default pace of sweeps.
const (
	// DefaultSweepAge is an hour, because a slow write to a deleted counter would bring it back, and after an hour there are no
	// such writes.
	DefaultSweepAge   = time.Hour
	DefaultSweepPause = 2 * time.Second // a pass takes some 34 minutes
)

// Bounds of the driver.
const (
	protocol          = 4               // the driver's latest; without it, the driver asks a node on a connection of its own
	connectTimeout    = 5 * time.Second // timeout of a connection, as a node that starts is slow
	ReconnectInterval = time.Second     // interval of attempts to reach a node that went away
	SpeculateAfter    = 5               // a repeatable request is sent to a second node after a fifth of the timeout
	readPageRows      = 5000            // rows of one page, for reads that are longer than expected
)

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// WithDefaults returns c with a value in every field but Hosts and Keyspace.
func (c Config) WithDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, demand.DefaultStoreTimeout)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.SweepAge = cmp.Or(c.SweepAge, DefaultSweepAge)
	c.SweepPause = cmp.Or(c.SweepPause, DefaultSweepPause)
	c.SerialConsistency = cmp.Or(c.SerialConsistency, "LOCAL_SERIAL")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Consistency = c.Consistency.WithDefault(policy.Consistency{Write: policy.LevelLocalQuorum, Read: policy.LevelLocalQuorum})
	return c
}

// Check returns a Mistake if c is invalid.
func (c *Config) Check() error {
	var err error
	switch {
	case len(c.Hosts) == 0:
		err = errors.New("cassandra-hosts: give at least one host[:port]")
	case !keyspaceName.MatchString(c.Keyspace):
		err = fmt.Errorf("cassandra-keyspace: %q is not a keyspace name: use a letter and up to 47 of a-z, 0-9 and '_'", c.Keyspace)
	default:
		_, err = SerialLevel(c.SerialConsistency)
	}
	if err != nil {
		return &Mistake{err}
	}
	return nil
}

// Settings returns the driver's settings for a session that prefers the nodes of datacenter, or no nodes if it is empty.
// policy keeps the session's nodes.
func (c *Config) Settings(datacenter string) (cl *gocql.ClusterConfig, policy *Nodes) {
	cl = gocql.NewCluster(c.Hosts...)
	cl.Port = c.port()
	cl.Timeout, cl.WriteTimeout = c.Timeout, c.Timeout
	cl.ConnectTimeout = connectTimeout
	cl.ProtoVersion = protocol
	cl.NumConns = c.Connections
	cl.WriteCoalesceWaitTime = 0 // trips already batch requests; another wait would only delay them
	cl.ReconnectInterval = ReconnectInterval
	cl.PageSize = readPageRows
	cl.Logger = driverLog{c.Logger}
	cl.DefaultTimestamp = true // a removal must be later than the row that it removes, on all nodes
	hosts := gocql.RoundRobinHostPolicy()
	if datacenter != "" {
		hosts = gocql.DCAwareRoundRobinPolicy(datacenter)
	}
	silences := newSilences(c.Timeout / SpeculateAfter)
	policy, cl.StreamObserver = newNodes(gocql.TokenAwareHostPolicy(knownHosts{hosts}), datacenter, silences), silences
	cl.PoolConfig.HostSelectionPolicy = policy
	if c.Username != "" {
		cl.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: c.Password}
	}
	if c.TLS != nil {
		cl.SslOpts = &gocql.SslOptions{Config: c.TLS, EnableHostVerification: !c.TLS.InsecureSkipVerify}
	}
	return cl, policy
}

// defaultPort is the port of Cassandra's native protocol.
const defaultPort = 9042

// port returns the port of the nodes that the driver finds by itself, which is that of the first host with a port.
func (c *Config) port() int {
	for _, host := range c.Hosts {
		if _, text, err := net.SplitHostPort(host); err == nil {
			if port, err := strconv.Atoi(text); err == nil {
				return port
			}
		}
	}
	return defaultPort
}

// Levels maps the names of consistency Levels to the driver's.
var Levels = map[policy.Level]gocql.Consistency{
	policy.LevelAny:         gocql.Any,
	policy.LevelOne:         gocql.One,
	policy.LevelTwo:         gocql.Two,
	policy.LevelThree:       gocql.Three,
	policy.LevelQuorum:      gocql.Quorum,
	policy.LevelAll:         gocql.All,
	policy.LevelLocalQuorum: gocql.LocalQuorum,
	policy.LevelLocalOne:    gocql.LocalOne,
	policy.LevelEachQuorum:  gocql.EachQuorum,

	policy.LevelSerial:      gocql.Consistency(gocql.Serial),
	policy.LevelLocalSerial: gocql.Consistency(gocql.LocalSerial),
}

// SerialLevel returns the driver's level called name, SERIAL or LOCAL_SERIAL.
func SerialLevel(name string) (gocql.SerialConsistency, error) {
	switch name {
	case "SERIAL":
		return gocql.Serial, nil
	case "LOCAL_SERIAL":
		return gocql.LocalSerial, nil
	}
	return 0, fmt.Errorf("serial-consistency: %q is not known: use LOCAL_SERIAL or SERIAL", name)
}

// driverLog passes the driver's messages on at the debug level, as callers of requests report their effects.
type driverLog struct{ to *slog.Logger }

// Print logs its arguments as fmt.Sprint formats them.
func (l driverLog) Print(v ...any) { l.to.Debug("cassandra driver", "message", fmt.Sprint(v...)) }

// Printf logs its arguments as fmt.Sprintf formats them.
func (l driverLog) Printf(format string, v ...any) {
	l.to.Debug("cassandra driver", "message", fmt.Sprintf(format, v...))
}

// Println logs its arguments as fmt.Sprintln formats them.
func (l driverLog) Println(v ...any) { l.to.Debug("cassandra driver", "message", fmt.Sprint(v...)) }
