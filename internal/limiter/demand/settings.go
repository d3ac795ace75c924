package demand

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Settings are the settings of all deciders. They are used after WithDefaults. The zero value suits a store with one copy in
// this process.
type Settings struct {
	Keyer          keys.Keyer                              // makes keys for writes
	AlsoRead       []keys.Keyer                            // make further keys to read
	Consistency    policy.Consistency                      // for policies without levels; zero: LOCAL_QUORUM for both
	Serial         policy.Level                            // level of compare-and-set; zero: LevelLocalSerial
	Datacenter     string                                  // name of the local data centre until MoveTo is called
	StoreTimeout   time.Duration                           // the longest a decision waits for the store; zero: DefaultStoreTimeout
	ClockTolerance time.Duration                           // how far instances' clocks may be from the store's
	ClockError     time.Duration                           // how far the clocks of the store's own nodes may differ; zero: one second
	Now            func() time.Time                        // nil: the system's clock
	Skewed         func() bool                             // reports whether the clock is beyond the tolerance; nil: it never is
	SyncInterval   time.Duration                           // between writes of units admitted from memory; zero: DefaultSyncInterval
	MaxKeys        int                                     // the most keys in an owner's memory; zero: DefaultMaxKeys
	Jitter         func(below time.Duration) time.Duration // the wait after a conflict with other instances; nil: random
	News           bool                                    // instances exchange news of resets, refunds and blocks

	// Together is called with the contexts of calls that share a request to the store, as the engine's Options say. It may be
	// nil.
	Together func(ctx context.Context, calls []context.Context) context.Context

	// GivenBack is called after units were given back in the store, to publish news of it. It may be nil.
	GivenBack func(context.Context, *Target)

	Timing *clock.Timing // made from the fields above
	keys   *keys.Cache   // for all policies
	moved  *atomic.Pointer[string]
}

// Defaults of settings.
const (
	// DefaultStoreTimeout is so short that callers wait for it.
	DefaultStoreTimeout = 500 * time.Millisecond
	// DefaultSyncInterval makes a busy key cost four writes a second.
	DefaultSyncInterval = 250 * time.Millisecond
	// DefaultMaxKeys keys take some 500 bytes each, 512 MiB in all.
	DefaultMaxKeys = 1 << 20
)

// WithDefaults returns s with defaults filled in, ready for use.
func (s Settings) WithDefaults() *Settings {
	s.StoreTimeout = cmp.Or(s.StoreTimeout, DefaultStoreTimeout)
	s.SyncInterval = cmp.Or(s.SyncInterval, DefaultSyncInterval)
	s.MaxKeys = cmp.Or(s.MaxKeys, DefaultMaxKeys)
	s.ClockError = cmp.Or(s.ClockError, time.Second)
	s.Serial = cmp.Or(s.Serial, policy.LevelLocalSerial)
	s.Consistency = s.Consistency.WithDefault(policy.Consistency{Write: policy.LevelLocalQuorum, Read: policy.LevelLocalQuorum})
	if s.Jitter == nil {
		s.Jitter = rand.N[time.Duration]
	}
	s.Timing = &clock.Timing{
		StoreTimeout: s.StoreTimeout, Tolerance: s.ClockTolerance, NodeError: s.ClockError, Now: s.Now, Skewed: s.Skewed,
	}
	s.keys, s.moved = new(keys.Cache), new(atomic.Pointer[string])
	return &s
}

// Region returns the name of the local data centre.
func (s *Settings) Region() string {
	if name := s.moved.Load(); name != nil {
		return *name
	}
	return s.Datacenter
}

// PrefixKey returns the key of an override of all identifiers with prefix under a policy.
func (s *Settings) PrefixKey(policy, prefix string) store.Key {
	return s.Keyer.OfPrefix(policy, prefix)
}

// MoveTo sets the name of the local data centre.
func (s *Settings) MoveTo(datacenter string) { s.moved.Store(&datacenter) }

// holdTTL returns the time to live of a hold's row.
func (s *Settings) holdTTL(hold time.Duration) time.Duration {
	return s.Timing.Lasting(hold + s.Timing.Slack())
}
