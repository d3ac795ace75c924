package main

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/origin"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// envPrefix is what the environment variables of all flags start with.
const envPrefix = "RATELIMITD_"

// passwordVariable is the one setting that is no flag: a command line is there for
// everybody on the machine to read.
const passwordVariable = envPrefix + "CASSANDRA_PASSWORD"

// settings are all that can be set, whichever command reads them.
type settings struct {
	config    string
	logLevel  slog.Level
	logFormat string

	listen      string
	envoyListen string // empty: nowhere
	connections int
	policies    string
	store       string
	dataDir     string
	dataSync    time.Duration
	maxKeys     int
	namespace   string
	hashKeyFile string
	headers     api.HeaderFamilies
	trusted     origin.Proxies // whose X-Forwarded-For is believed
	forwardAuth api.ForwardAuth
	proxy       proxySettings
	migrate     bool
	security    securitySettings
	peers       peerSettings
	auditLog    string

	clockTolerance       time.Duration
	clockBeyondTolerance string
	consistency          limiter.Level
	storeTimeout         time.Duration
	syncInterval         time.Duration

	cassandra cassandraSettings
}

type cassandraSettings struct {
	hosts             hostList
	keyspace          string
	datacenter        string
	replication       string
	serialConsistency limiter.Level
	username          string
	password          string // from the environment
	passwordFile      string
	tls               tlsSettings
}

type tlsSettings struct {
	on         bool
	ca         string
	cert       string
	key        string
	serverName string
}

// The values of some flags that others ask for.
const (
	storeEmbedded  = "embedded"
	storeCassandra = "cassandra"
	clockRefuse    = "refuse"
	clockWarn      = "warn"
	logText        = "text"
	logJSON        = "json"
)

// maxStoreTimeout leaves time for what is in flight and for a flush within the ten
// seconds that a shutdown may take.
const maxStoreTimeout = 5 * time.Second

// Bounds of --data-sync-interval: a disk takes some milliseconds to sync, and who can
// lose more than an hour needs no disk.
const (
	minDataSync = 10 * time.Millisecond
	maxDataSync = time.Hour
)

// Bounds of --sync-interval: below, a store takes longer than that for one write and one
// read; above, news of resets come sooner than counts.
const (
	minSyncInterval = 10 * time.Millisecond
	maxSyncInterval = 10 * time.Second
)

// maxClockTolerance is more than any clock that is kept in step is ever off.
const maxClockTolerance = time.Minute

func (s *settings) addCommonFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.config, "config", "", "YAML `file` that sets any other flag by its name")
	parsed(flags, &s.logLevel, "log-level", "info", "level", "least level that is logged: debug, info, warn or error", logLevel)
	parsed(flags, &s.logFormat, "log-format", logText, "format", "of the log on standard error: text or json", oneOf(logText, logJSON))
}

func (s *settings) addServeFlags(flags *pflag.FlagSet) {
	parsed(flags, &s.listen, "listen", "127.0.0.1:8080", "address", "HTTP address; port 0 takes any free one", address)
	s.security.addFlags(flags)
	s.peers.addFlags(flags)
	flags.StringVar(&s.auditLog, "audit-log", "",
		"`file` that gets a line of JSON for everything that an administrator does (default: standard error)")
	parsed(flags, &s.envoyListen, "envoy-listen", "", "address",
		"gRPC address for Envoy's rate limit filters, and for what asks Limitador; port 0 takes any free one (default: none)", address)
	parsed(flags, &s.connections, "max-connections", strconv.Itoa(api.DefaultMaxConnections), "count",
		"connections that are open at most: idle ones are closed for new ones; without any, new ones are refused", atLeastOne)
	flags.StringVar(&s.policies, "policies", "", "YAML `file` of policies (default: the examples of \"ratelimitd policies show\")")
	parsed(flags, &s.store, "store", storeEmbedded, "store", "what keeps the counts: embedded (memory) or cassandra",
		oneOf(storeEmbedded, storeCassandra))
	flags.StringVar(&s.dataDir, "data-dir", "", "`folder` that the embedded store keeps counts in across restarts (default: in memory only)")
	parsed(flags, &s.dataSync, "data-sync-interval", embedded.DefaultSyncEvery.String(), "duration",
		"how often --data-dir is brought up to date: a crash loses what is younger", between(minDataSync, maxDataSync))
	parsed(flags, &s.maxKeys, "max-keys", strconv.Itoa(embedded.DefaultMaxKeys), "count",
		"keys that the embedded store keeps at most", atLeastOne)
	flags.StringVar(&s.namespace, "namespace", "default", "separates users of one keyspace; part of every `key`")
	flags.StringVar(&s.hashKeyFile, "hash-key-file", "",
		"`file` of id:key lines, base64 or hex, to hash identifiers with HMAC-SHA-256: the first writes, all are read")
	parsed(flags, &s.headers, "headers", api.HeadersDefault.String(), "families",
		"of headers on decisions: ietf (or as in older drafts, ietf-06 or ietf-07), x-ratelimit, x-rate-limit, with commas between, or none",
		api.ParseHeaders)
	s.addForwardAuthFlags(flags)
	flags.BoolVar(&s.migrate, "migrate", false, "bring the schema up to date first")
	parsed(flags, &s.clockTolerance, "clock-tolerance", "100ms", "duration",
		"how far clocks may be from the cluster's (embedded: 0 unless given)", between(0, maxClockTolerance))
	parsed(flags, &s.clockBeyondTolerance, "clock-beyond-tolerance", clockRefuse, "what", "to do then: refuse or warn",
		oneOf(clockRefuse, clockWarn))
	parsed(flags, &s.consistency, "consistency", string(limiter.LevelLocalQuorum), "level",
		"to write and read at, for policies that do not say", limiter.ParseReadLevel)
	parsed(flags, &s.storeTimeout, "store-timeout", limiter.DefaultStoreTimeout.String(), "duration",
		"the longest that one decision waits for the store", between(time.Millisecond, maxStoreTimeout))
	parsed(flags, &s.syncInterval, "sync-interval", limiter.DefaultSyncInterval.String(), "duration",
		"after how long owners write what they admitted under guarantee local", between(minSyncInterval, maxSyncInterval))
}

func (s *securitySettings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.authFile, "auth-file", "", "YAML `file` of callers: digests of their tokens, and what they may ask for")
	flags.StringVar(&s.tlsCert, "tls-cert-file", "",
		"PEM `file` of this server's certificate and those that lead to its authority: TLS is spoken then")
	flags.StringVar(&s.tlsKey, "tls-key-file", "", "PEM `file` of its key")
	flags.StringVar(&s.tlsClientCA, "tls-client-ca-file", "", "PEM `file` of authorities: clients must show a certificate of one of them")
	flags.BoolVar(&s.insecureNoAuth, "insecure-no-auth", false,
		"listen where other machines reach it, although nobody is asked who they are")
	parsed(flags, &s.hosts, "allowed-hosts", "", "names",
		"of this server, with commas between: where nobody is asked who they are, requests to other names than these and localhost are refused",
		api.ParseHosts)
}

func (s *settings) addForwardAuthFlags(flags *pflag.FlagSet) {
	parsed(flags, &s.trusted, "trusted-proxies", "127.0.0.0/8,::1", "prefixes",
		"whose X-Forwarded-For is believed, with commas between, or none: gateways that ask /v1/forward-auth and proxies in front of them "+
			"(with --auth-file, nobody may ask there unless this is given)",
		origin.ParseProxies)
	parsed(flags, &s.forwardAuth.Identify, "forward-auth-identify", "ip", "sources",
		"that /v1/forward-auth may identify by, its default first: ip, header:NAME, api-key, user, all, with commas between", sources)
}

func (s *settings) addCassandraFlags(flags *pflag.FlagSet) {
	c := &s.cassandra
	c.hosts.hosts = []string{"127.0.0.1"}
	flags.Var(&c.hosts, "cassandra-hosts", "host[:port] of some nodes, with commas between")
	flags.StringVar(&c.keyspace, "cassandra-keyspace", "ratelimitd", "`keyspace` of the tables")
	flags.StringVar(&c.datacenter, "cassandra-datacenter", "", "`name` of the local data centre (default: the cluster's, if it has one)")
	flags.StringVar(&c.replication, "cassandra-replication", "",
		"CQL `map` to create the keyspace with (default NetworkTopologyStrategy, min(3, nodes))")
	parsed(flags, &c.serialConsistency, "serial-consistency", string(limiter.LevelLocalSerial), "level",
		"of compare-and-set, for buckets and serial policies: LOCAL_SERIAL or SERIAL", limiter.ParseSerialLevel)
	flags.StringVar(&c.username, "cassandra-username", "", "`name` to log in with; the password is in a file or in "+passwordVariable)
	flags.StringVar(&c.passwordFile, "cassandra-password-file", "", "`file` that holds the password")
	flags.BoolVar(&c.tls.on, "cassandra-tls", false, "speak TLS to the cluster")
	flags.StringVar(&c.tls.ca, "cassandra-tls-ca", "", "PEM `file` of the authorities to trust (default: the system's)")
	flags.StringVar(&c.tls.cert, "cassandra-tls-cert", "", "PEM `file` of this client's certificate")
	flags.StringVar(&c.tls.key, "cassandra-tls-key", "", "PEM `file` of its key")
	flags.StringVar(&c.tls.serverName, "cassandra-tls-server-name", "", "`name` in the nodes' certificates (default: the host's)")
}

// load fills in what the command line did not set, and returns the log that they
// ask for.
func (s *settings) load(cmd *cobra.Command, environ []string) (*slog.Logger, error) {
	warnings, err := configure(cmd.Flags(), environ)
	if s.store == storeEmbedded && !cmd.Flags().Changed("clock-tolerance") {
		s.clockTolerance = 0 // there is one clock
	}
	if s.security.authFile == "" || cmd.Flags().Changed("trusted-proxies") { // else whoever is on this machine needed no token there
		s.forwardAuth.TrustedProxies = s.trusted
	}
	for _, entry := range environ {
		if password, found := strings.CutPrefix(entry, passwordVariable+"="); found {
			s.cassandra.password = password
		}
	}
	log := s.newLog(cmd.ErrOrStderr())
	for _, w := range warnings {
		log.Warn(w)
	}
	return log, err
}

// configure sets the flags that the command line did not, from the environment
// and the file, which all commands share: what another one reads is not wrong.
func configure(flags *pflag.FlagSet, environ []string) (warnings []string, err error) {
	var served settings
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	served.addCommonFlags(known)
	served.addServeFlags(known)
	served.addCassandraFlags(known)
	var asked askSettings
	asking := pflag.NewFlagSet("", pflag.ContinueOnError)
	asked.addServerFlags(asking)
	asked.addDecisionFlags(asking)
	new(overrideFlags).add(asking)
	known.AddFlagSet(asking) // --config is in both
	served.addProxyFlags(known)
	return config.Apply(flags, &config.Options{
		Prefix: envPrefix, Environ: environ, File: "config",
		AlsoKnown: flagNames(known), AlsoKeys: []string{proxy.Key}, AlsoVariables: []string{passwordVariable, tokenVariable},
	})
}

// levels returns the levels of policies that do not say.
func (s *settings) levels() limiter.Consistency {
	return limiter.Consistency{Write: s.consistency, Read: s.consistency}
}
