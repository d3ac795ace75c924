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

// Settings are what all that decides goes by. The zero value suits a store with one copy in this
// process; it is made ready by WithDefaults.
type Settings struct {
	Keyer          keys.Keyer                              // of the keys that are written under
	AlsoRead       []keys.Keyer                            // of keys that are read as well
	Consistency    policy.Consistency                      // for policies that do not say; zero: LOCAL_QUORUM for both
	Serial         policy.Level                            // of compare-and-set; zero: LevelLocalSerial
	Datacenter     string                                  // name of the local one, until another one is given to MoveTo
	StoreTimeout   time.Duration                           // the longest a decision waits for the store; zero: DefaultStoreTimeout
	ClockTolerance time.Duration                           // how far instances' clocks may be from the store's
	ClockError     time.Duration                           // how far the clocks of the store's own nodes may differ; zero: one second
	Now            func() time.Time                        // nil: the system's clock
	Skewed         func() bool                             // whether this instance's clock is beyond the tolerance; nil: never
	SyncInterval   time.Duration                           // after which what is admitted from memory is written; zero: DefaultSyncInterval
	MaxKeys        int                                     // whose counts an owner remembers at most; zero: DefaultMaxKeys
	Jitter         func(below time.Duration) time.Duration // how long to wait for instances that met to part; nil: at random
	News           bool                                    // instances tell each other of resets, refunds and blocks

	// Together is for what the store is asked for several calls at once: see the engine's Options. Nil: nobody is told.
	Together func(ctx context.Context, calls []context.Context) context.Context

	// AwaitPolicies puts a version of the policies in force that another instance has: see the engine's Options. Nil:
	// policies have no versions.
	AwaitPolicies func(ctx context.Context, version int64) error

	// GivenBack is told what was given back in the store later than its call was answered. Nil: nobody is.
	GivenBack func(context.Context, *Target)

	Timing *clock.Timing // of what is given above
	keys   *keys.Cache   // of all policies
	moved  *atomic.Pointer[string]
}

// Defaults of settings.
const (
	// DefaultStoreTimeout is short enough that callers wait for it.
	DefaultStoreTimeout = 500 * time.Millisecond
	// DefaultSyncInterval has a key that is busy cost four writes a second.
	DefaultSyncInterval = 250 * time.Millisecond
	// DefaultMaxKeys are of some 500 bytes each, 512 MiB in all.
	DefaultMaxKeys = 1 << 20
)

// WithDefaults returns s made ready.
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

// PrefixKey returns the key of an override of all identifiers under a policy that begin with prefix.
func (s *Settings) PrefixKey(policy, prefix string) store.Key {
	return s.Keyer.OfPrefix(policy, prefix)
}

// MoveTo names the local data centre.
func (s *Settings) MoveTo(datacenter string) { s.moved.Store(&datacenter) }

// holdTTL returns how long the row of a hold must live.
func (s *Settings) holdTTL(hold time.Duration) time.Duration {
	return s.Timing.Lasting(hold + s.Timing.Slack())
}
