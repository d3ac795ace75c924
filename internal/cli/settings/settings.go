// Package settings holds the settings of a server: flags, their bounds, and the contents of the files that they name.
// The commands serve and proxy have all of them; migrate, members and key have some.
//
// It does not know how a server is made of them.
package settings

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Settings are all settings of a server. The defaults are set when the flags are added: the zero value has none.
type Settings struct {
	Config    string // file
	logLevel  slog.Level
	logFormat string

	Listen      string
	EnvoyListen string // empty: nowhere
	Connections int
	HTTPServer  string // of Listen
	Policies    string // file; empty: the examples
	Store       string
	DataDir     string // empty: counts are kept in memory only
	DataSync    time.Duration
	MaxKeys     int
	Namespace   string
	HashKeyFile string // empty: identifiers are hashed without a key
	Headers     encode.HeaderFamilies
	Trusted     origin.Proxies // whose X-Forwarded-For is believed
	ForwardAuth api.ForwardAuth
	Proxy       Proxy
	Migrate     bool
	Security    Security
	Peers       Peers
	Events      Events
	AuditLog    string // file; empty: standard error
	UI          bool   // the live page is served

	ClockTolerance       time.Duration
	ClockBeyondTolerance string
	Consistency          policy.Level // of policies that set none
	SerialConsistency    policy.Level // of compare-and-set
	StoreTimeout         time.Duration
	SyncInterval         time.Duration
	AcceptedCaveats      []cassandra.Caveat // of the cluster, for which no alert fires

	Cassandra Cassandra
}

// Values of some flags.
const (
	StoreEmbedded  = "embedded"
	StoreCassandra = "cassandra"
	HTTPStd        = "std"
	httpFast       = "fast"
	ClockRefuse    = "refuse"
	clockWarn      = "warn"
	logText        = "text"
	LogJSON        = "json"
)

// maxStoreTimeout leaves time for requests in flight and for a flush, within the ten seconds of a shutdown.
const maxStoreTimeout = 5 * time.Second

// Bounds of --data-sync-interval: a disk takes some milliseconds to sync, and an operator that can lose more than an
// hour needs no disk.
const (
	minDataSync = 10 * time.Millisecond
	maxDataSync = time.Hour
)

// Bounds of --sync-interval. Below the least, a store takes longer for a write and a read; above the most, news of
// resets would come sooner than counts.
const (
	minSyncInterval = 10 * time.Millisecond
	maxSyncInterval = 10 * time.Second
)

// MaxClockTolerance is more than the error of any synchronized clock.
const MaxClockTolerance = time.Minute

// AddCommonFlags adds the flags of every command that has a log.
func (s *Settings) AddCommonFlags(flags *pflag.FlagSet) {
	command.AddConfig(flags, &s.Config)
	command.Var(flags, &s.logLevel, "log-level", "info", "level", "least severe level that is logged: debug, info, warn or error", logLevel)
	command.Var(flags, &s.logFormat, "log-format", logText, "format", "format of the log on standard error: text or json",
		command.OneOf(logText, LogJSON))
}

// AddServeFlags adds the flags of a server, except those of Cassandra and of the proxy.
func (s *Settings) AddServeFlags(flags *pflag.FlagSet) {
	command.Var(flags, &s.Listen, "listen", "127.0.0.1:8080", "address", "HTTP address; port 0 takes any free port", command.Address)
	s.Security.addFlags(flags)
	s.Peers.addFlags(flags)
	s.Events.addFlags(flags)
	flags.StringVar(&s.AuditLog, "audit-log", "",
		"`file` of the audit log: a line of JSON for each action of an administrator (default: standard error, in --log-format)")
	flags.BoolVar(&s.UI, "ui", false, "serve a live page at /ui: decisions, owners, store and clock, explain and overrides")
	command.Var(flags, &s.EnvoyListen, "envoy-listen", "", "address",
		"gRPC address for Envoy's rate limit filters and clients of Limitador; port 0 takes any free port (default: none)", command.Address)
	command.Var(flags, &s.Connections, "max-connections", strconv.Itoa(connections.DefaultMost), "count",
		"maximum of open connections: a new one replaces an idle one, or is refused if none is idle", command.AtLeastOne)
	command.Var(flags, &s.HTTPServer, "http-server", httpFast, "reader",
		"reader of the API's requests: fast (without net/http where it can, which takes less processor time) or std (net/http)",
		command.OneOf(httpFast, HTTPStd))
	flags.StringVar(&s.Policies, "policies", "",
		"YAML `file` of policies (default: those in the store; if it has none, the examples)")
	command.Var(flags, &s.Store, "store", StoreEmbedded, "store", "store of the counts: embedded (memory) or cassandra",
		command.OneOf(StoreEmbedded, StoreCassandra))
	flags.StringVar(&s.DataDir, "data-dir", "", "`folder` where the embedded store keeps counts across restarts (default: in memory only)")
	command.Var(flags, &s.DataSync, "data-sync-interval", embedded.DefaultSyncEvery.String(), "duration",
		"time between two writes to --data-dir: a crash loses counts since the last one", command.Between(minDataSync, maxDataSync))
	command.Var(flags, &s.MaxKeys, "max-keys", strconv.Itoa(embedded.DefaultMaxKeys), "count",
		"maximum of keys in memory, of the embedded store or of an owner of keys (cassandra)", command.AtLeastOne)
	flags.StringVar(&s.Namespace, "namespace", "default", "`namespace` of all keys: separates users of one keyspace")
	flags.StringVar(&s.HashKeyFile, "hash-key-file", "",
		"`file` of id:key lines (base64 or hex): keys of the HMAC-SHA-256 that hashes identifiers. New counts use the first key, "+
			"old counts are read by all keys")
	command.Var(flags, &s.Headers, "headers", encode.HeadersDefault.String(), "families",
		"headers on decisions: ietf (or ietf-07, as in draft 07), x-ratelimit, x-rate-limit, separated by commas, or none",
		encode.ParseHeaders)
	s.addForwardAuthFlags(flags)
	flags.BoolVar(&s.Migrate, "migrate", false, "bring the schema up to date before serving")
	command.Var(flags, &s.ClockTolerance, "clock-tolerance", "100ms", "duration",
		"largest tolerated difference between a clock and the cluster's (embedded: 0 unless given)", command.Between(0, MaxClockTolerance))
	command.Var(flags, &s.ClockBeyondTolerance, "clock-beyond-tolerance", ClockRefuse, "action",
		"action beyond --clock-tolerance: refuse or warn",
		command.OneOf(ClockRefuse, clockWarn))
	command.Var(flags, &s.Consistency, "consistency", string(policy.LevelLocalQuorum), "level",
		"level of writes and reads, for policies that set none", policy.ParseReadLevel)
	command.Var(flags, &s.StoreTimeout, "store-timeout", demand.DefaultStoreTimeout.String(), "duration",
		"longest time that a decision waits for the store", command.Between(time.Millisecond, maxStoreTimeout))
	command.Var(flags, &s.SyncInterval, "sync-interval", demand.DefaultSyncInterval.String(), "duration",
		"longest time until owners write units admitted under guarantee: local", command.Between(minSyncInterval, maxSyncInterval))
	command.Var(flags, &s.AcceptedCaveats, "accept-caveats", "", "caveats",
		"caveats of the cluster that you accept, separated by commas: "+acceptable+"; no alert fires for them (default: none)", caveats)
}

const (
	flagIdentify      = "forward-auth-identify"
	identifyByDefault = "ip"
)

func (s *Settings) addForwardAuthFlags(flags *pflag.FlagSet) {
	command.Var(flags, &s.Trusted, "trusted-proxies", "127.0.0.0/8,::1", "prefixes",
		"addresses whose X-Forwarded-For is trusted, separated by commas, or none: gateways that ask /v1/forward-auth, and proxies in "+
			"front of them (with --auth-file, /v1/forward-auth is closed unless this is given)",
		origin.ParseProxies)
	command.Var(flags, &s.ForwardAuth.Identify, flagIdentify, identifyByDefault, "sources",
		"sources that /v1/forward-auth may identify a caller by, separated by commas, its default first: ip, header:NAME, api-key, user, all",
		sources)
}

// Load fills in the settings that are not on the command line of cmd, from the environment and the file. It returns the
// log by the settings, even with an error.
func (s *Settings) Load(cmd *cobra.Command, p *command.Process) (*slog.Logger, error) {
	warnings, err := p.Configure(cmd)
	if s.Store == StoreEmbedded && !cmd.Flags().Changed("clock-tolerance") {
		s.ClockTolerance = 0 // there is one clock
	}
	if s.Security.AuthFile == "" || cmd.Flags().Changed("trusted-proxies") { // otherwise local processes would need no token
		s.ForwardAuth.TrustedProxies = s.Trusted
	}
	s.Events.secret = command.Secret(p.Getenv(command.EventsVariable))
	s.Cassandra.password = command.Secret(p.Getenv(command.PasswordVariable))
	log := slog.New(s.LogHandler(cmd.ErrOrStderr(), s.logLevel))
	for _, w := range warnings {
		log.Warn(w)
	}
	return log, err
}

// Hide removes all flags but these from the help. A command with the configuration of a server accepts all of its
// flags, and uses some.
func Hide(flags *pflag.FlagSet, but ...string) {
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(but, f.Name) })
}

// Levels returns the consistency levels of policies that set none.
func (s *Settings) Levels() policy.Consistency {
	return policy.Consistency{Write: s.Consistency, Read: s.Consistency}
}

// Common returns the settings in which all instances of a namespace must agree, by the names of their flags. The hash
// key is another one, which is no text. --forward-auth-identify is left out if it is not set, since perhaps no gateway
// asks this instance.
func (s *Settings) Common() map[string]string {
	common := map[string]string{
		"clock-tolerance":        s.ClockTolerance.String(),
		"clock-beyond-tolerance": s.ClockBeyondTolerance,
		"consistency":            string(s.Consistency),
		"serial-consistency":     string(s.SerialConsistency),
		"store-timeout":          s.StoreTimeout.String(),
		"sync-interval":          s.SyncInterval.String(),
	}
	var by []string
	for _, source := range s.ForwardAuth.Identify {
		by = append(by, source.String())
	}
	if text := strings.Join(by, ","); text != identifyByDefault {
		common[flagIdentify] = text
	}
	return common
}

// LogHandler returns a handler that writes lines of at least level to w, in the format of the settings.
func (s *Settings) LogHandler(w io.Writer, level slog.Level) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if s.logFormat == LogJSON {
		return slog.NewJSONHandler(w, opts)
	}
	return slog.NewTextHandler(w, opts)
}

// sources parses a list of sources of identifiers, separated by commas.
func sources(text string) (all []origin.Source, err error) {
	for part := range strings.SplitSeq(text, ",") {
		source, err := origin.ParseSource(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	return all, nil
}

// acceptable are the caveats that an operator may choose to live with. Wrong clocks are a fault.
const acceptable = string(cassandra.CaveatCommitlog) + ", " + string(cassandra.CaveatReplication)

// caveats parses a list of acceptable caveats, separated by commas. It may be empty.
func caveats(text string) (all []cassandra.Caveat, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		word, err := command.OneOf(strings.Split(acceptable, ", ")...)(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, cassandra.Caveat(word))
	}
	return all, nil
}

func logLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, fmt.Errorf("%q is not a level: use one of debug, info, warn, error", text)
	}
	return level, nil
}
