package inprocess

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Options of Limits. The zero value counts in memory.
type Options struct {
	Cassandra *Cassandra // the cluster that keeps counts; nil: this process keeps them
	DataDir   string     // a folder that keeps this process's counts across restarts; empty: restarts lose them
	MaxKeys   int        // in memory, including what is remembered of Cassandra's keys; zero: a million

	// Namespace separates users of one keyspace; empty: "default", as in a server.
	Namespace string
	// HashKeys hash identifiers: the first for writes, all for reads. Without one, identifiers are hashed by plain
	// SHA-256, and an attacker that lists all phone numbers can find those that are counted.
	HashKeys []HashKey

	StoreTimeout   time.Duration // the longest wait of a decision for Cassandra; zero: 500 ms
	ClockTolerance time.Duration // the largest difference from Cassandra's clocks with which this process decides; zero: 100 ms
	SyncInterval   time.Duration // between writes of units admitted under guarantee local; zero: 250 ms

	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // for tests, without Cassandra; nil: time.Now
}

// HashKey is a secret of at least 16 bytes, and its name, which is not secret.
type HashKey struct {
	ID     string
	Secret []byte
}

// Cassandra has the connection to a cluster. Its tables must exist: ratelimitd migrate makes them.
type Cassandra struct {
	Hosts             []string    // host or host:port; at least one must answer
	Keyspace          string      // empty: ratelimitd
	Datacenter        string      // the local one; empty: the only one of the cluster
	Username          string      // empty: no authentication
	Password          string      //
	TLS               *tls.Config // nil: plain text
	Write, Read       string      // levels for policies without one; empty: LOCAL_QUORUM
	SerialConsistency string      // LOCAL_SERIAL or SERIAL; empty: LOCAL_SERIAL
	PeerSecret        []byte      // content of servers' --peer-secret-file; empty: servers have none
}

// Defaults of a server, which processes must share to count alike.
const (
	defaultNamespace      = "default"
	defaultKeyspace       = "ratelimitd"
	defaultClockTolerance = 100 * time.Millisecond
)

func (o *Options) withDefaults() Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	d.Namespace = cmp.Or(d.Namespace, defaultNamespace)
	d.StoreTimeout = cmp.Or(d.StoreTimeout, demand.DefaultStoreTimeout)
	d.SyncInterval = cmp.Or(d.SyncInterval, demand.DefaultSyncInterval)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.Cassandra != nil {
		d.ClockTolerance = cmp.Or(d.ClockTolerance, defaultClockTolerance)
		c := *d.Cassandra
		c.Keyspace = cmp.Or(c.Keyspace, defaultKeyspace)
		c.SerialConsistency = cmp.Or(c.SerialConsistency, string(policy.LevelLocalSerial))
		d.Cassandra = &c
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

func (o *Options) check() error {
	switch {
	case o.Cassandra != nil && o.DataDir != "":
		return errors.New("ratelimitd: DataDir is for counts of this process, and Cassandra keeps its own")
	case o.Cassandra == nil && o.ClockTolerance != 0:
		return errors.New("ratelimitd: ClockTolerance is for Cassandra: a process has one clock")
	case o.StoreTimeout < 0 || o.ClockTolerance < 0 || o.SyncInterval < 0 || o.MaxKeys < 0:
		return errors.New("ratelimitd: an option is negative")
	}
	for _, k := range o.HashKeys {
		if len(k.Secret) < keys.MinSecretLen {
			return fmt.Errorf("ratelimitd: hash key %q has %d bytes: at least %d are needed", k.ID, len(k.Secret), keys.MinSecretLen)
		}
	}
	return nil
}

// levels returns the levels of policies that set none.
func (o *Options) levels() (c policy.Consistency, err error) {
	if o.Cassandra == nil {
		return c, nil
	}
	if c.Write, err = levelOf(o.Cassandra.Write, policy.ParseWriteLevel); err != nil {
		return c, err
	}
	c.Read, err = levelOf(o.Cassandra.Read, policy.ParseReadLevel)
	return c, err
}

func levelOf(name string, parse func(string) (policy.Level, error)) (policy.Level, error) {
	if name == "" {
		return policy.LevelLocalQuorum, nil
	}
	return parse(name)
}

// hashKeys returns o.HashKeys in the engine's type.
func (o *Options) hashKeys() []keys.HashKey {
	all := make([]keys.HashKey, len(o.HashKeys))
	for i, key := range o.HashKeys {
		all[i] = keys.HashKey(key)
	}
	return all
}

// engine returns the options of an engine over s.
func (o *Options) engine(s *backend) *limiter.Options {
	keyer, alsoRead := keys.KeyersOf(o.Namespace, o.hashKeys())
	made := &limiter.Options{
		Keyer: keyer, AlsoRead: alsoRead, Consistency: s.levels, Datacenter: s.datacenter,
		ClockTolerance: o.ClockTolerance, StoreTimeout: o.StoreTimeout, SyncInterval: o.SyncInterval, MaxKeys: o.MaxKeys,
		Now: o.Now, Skewed: s.skewed, Local: s.local, Feed: s.feed, Identifiers: identifier.Reader,
		Owners: s.members.owners(),
	}
	if o.Cassandra != nil {
		made.Serial = policy.Level(o.Cassandra.SerialConsistency)
	}
	return made
}
