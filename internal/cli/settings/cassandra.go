package settings

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Cassandra has the settings of the cluster, and of connections to it.
type Cassandra struct {
	hosts        hostList
	Datacenter   string // empty: the cluster's, if it has one
	keyspace     string
	replication  string
	username     string
	password     string // from the environment
	passwordFile string
	tls          tlsSettings

	// AuthoritiesExpire is when the first authority that verifies nodes expires; zero if the system's are used.
	// CassandraConfig sets it.
	AuthoritiesExpire time.Time
}

// tlsSettings are the settings of TLS to the cluster.
type tlsSettings struct {
	on         bool
	ca         string
	cert       string
	key        string
	serverName string
}

// AddCassandraFlags adds the flags of the cluster, and of connections to it.
func (s *Settings) AddCassandraFlags(flags *pflag.FlagSet) {
	c := &s.Cassandra
	c.hosts.list = []string{"127.0.0.1"}
	flags.Var(&c.hosts, "cassandra-hosts", "host[:port] of some nodes, separated by commas")
	flags.StringVar(&c.keyspace, "cassandra-keyspace", "ratelimitd", "`keyspace` of the tables")
	flags.StringVar(&c.Datacenter, "cassandra-datacenter", "", "`name` of the local data centre (default: the cluster's, if it has one)")
	flags.StringVar(&c.replication, "cassandra-replication", "",
		"CQL `map` for the replication of a new keyspace (default NetworkTopologyStrategy, min(3, nodes))")
	command.Var(flags, &s.SerialConsistency, "serial-consistency", string(policy.LevelLocalSerial), "level",
		"level of compare-and-set, for buckets: LOCAL_SERIAL or SERIAL", policy.ParseSerialLevel)
	flags.StringVar(&c.username, "cassandra-username", "", "`name` to log in with; the password is in a file or in "+command.PasswordVariable)
	flags.StringVar(&c.passwordFile, "cassandra-password-file", "", "`file` that holds the password")
	flags.BoolVar(&c.tls.on, "cassandra-tls", false, "use TLS for connections to the cluster")
	flags.StringVar(&c.tls.ca, "cassandra-tls-ca", "", "PEM `file` of trusted authorities (default: the system's)")
	flags.StringVar(&c.tls.cert, "cassandra-tls-cert", "", "PEM `file` of this client's certificate")
	flags.StringVar(&c.tls.key, "cassandra-tls-key", "", "PEM `file` of the key of --cassandra-tls-cert")
	flags.StringVar(&c.tls.serverName, "cassandra-tls-server-name", "", "`name` in the nodes' certificates (default: the host's)")
}

// CassandraConfig returns the store's configuration, with the contents of the files that the settings name.
func (s *Settings) CassandraConfig(log *slog.Logger, now func() time.Time) (cassandra.Config, error) {
	c := &s.Cassandra
	password, passwordErr := c.readPassword(log)
	command.WarnOfReaders("--cassandra-tls-key", c.tls.key, log)
	tlsConfig, expire, tlsErr := c.tls.read()
	if err := errors.Join(passwordErr, tlsErr); err != nil {
		return cassandra.Config{}, err
	}
	c.AuthoritiesExpire = expire
	return cassandra.Config{
		Hosts:             c.hosts.list,
		Keyspace:          c.keyspace,
		Datacenter:        c.Datacenter,
		Replication:       c.replication,
		Username:          c.username,
		Password:          password,
		TLS:               tlsConfig,
		Timeout:           s.StoreTimeout,
		Consistency:       s.Levels(),
		SerialConsistency: string(s.SerialConsistency),
		ClockTolerance:    s.ClockTolerance,
		Logger:            log,
		Now:               now,
	}, nil
}

// readPassword returns the password for the user name, from the file or from the environment. Each needs the other.
func (c *Cassandra) readPassword(log *slog.Logger) (_ string, err error) {
	password := c.password
	switch {
	case password != "" && c.passwordFile != "":
		return "", errors.New("both " + command.PasswordVariable + " and --cassandra-password-file are set: keep one of them")
	case c.passwordFile != "":
		if password, err = command.ReadSecret("--cassandra-password-file", c.passwordFile, log); err != nil {
			return "", err
		}
	}
	if (password == "") != (c.username == "") {
		return "",
			errors.New("--cassandra-username and a password (--cassandra-password-file or " + command.PasswordVariable + ") need each other")
	}
	return password, nil
}

// read returns the configuration of TLS, nil if it is off, and when the first of the authorities expires.
func (t *tlsSettings) read() (config *tls.Config, expire time.Time, err error) {
	if !t.on {
		if t.ca != "" || t.cert != "" || t.key != "" || t.serverName != "" {
			return nil, expire, errors.New("a --cassandra-tls-... setting does nothing without --cassandra-tls: add that or remove it")
		}
		return nil, expire, nil
	}
	config, expire, err = command.ClientTLS(command.ClientFiles{
		CAFlag: "--cassandra-tls-ca", CA: t.ca,
		CertFlag: "--cassandra-tls-cert", Cert: t.cert,
		KeyFlag: "--cassandra-tls-key", Key: t.key,
	})
	if err != nil {
		return nil, expire, err
	}
	config.ServerName = t.serverName
	return config, expire, nil
}
