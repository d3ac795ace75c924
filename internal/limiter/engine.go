package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/exclusive"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/route"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Engine decides. It is safe for concurrent use; make one with New.
type Engine struct {
	// Overrides has the administrators' overrides.
	Overrides *Overrides

	*basis
	shared    *route.Router    // the decider over a store that instances share; nil: the store is in memory
	counted   *counted.Decider // the part of shared that decides on this instance; nil: the store is in memory
	plans     *plans
	charger   *charger
	judge     *judge.Judge
	explainer *explainer
	news      *signals.News // nil: there is no feed
	resets    *resets
	relented  func(key store.Key, d *count.Decision) // may be nil
	borrowed  sync.Pool                              // of *single

	claimed // parts for actions that may happen only once
}

// Options of an Engine. The zero value suits a store in this process's memory.
type Options struct {
	Keyer          keys.Keyer                        // makes keys for writes
	AlsoRead       []keys.Keyer                      // make further keys to read: those that other instances write, or wrote before
	Consistency    policy.Consistency                // levels for policies without one; zero: LOCAL_QUORUM for both
	Serial         policy.Level                      // of compare-and-set: LevelSerial or LevelLocalSerial; zero: the latter
	Datacenter     string                            // the local one; part of the keys of guarantees within a data centre; see MoveTo
	ClockTolerance time.Duration                     // maximum difference of an instance's clock and the store's; whole milliseconds
	StoreTimeout   time.Duration                     // the longest time that a decision waits for the store; zero: DefaultStoreTimeout
	ClockError     time.Duration                     // maximum difference of the clocks of the store's nodes; zero: one second
	Now            func() time.Time                  // nil: the system's clock, whose changes take effect within a millisecond
	Skewed         func() bool                       // reports whether this instance's clock is beyond the tolerance now; nil: never
	Local          store.Exclusive                   // decides for OnStoreErrorLocal; nil: those policies deny
	SyncInterval   time.Duration                     // between writes of units admitted under GuaranteeLocal; zero: DefaultSyncInterval
	MaxKeys        int                               // maximum of keys in an owner's memory, at least some 128; zero: DefaultMaxKeys
	Feed           store.Feed                        // carries news between instances; nil: blocks, overrides and the like stay on this one
	Observer       Observer                          // is called with decisions and calls
	Identifiers    policy.Identifiers                // returns readers for policies with Normalize; nil: such policies are refused
	Jitter         func(time.Duration) time.Duration // returns a wait after a conflict between instances, below its argument; nil: random
	Owners         demand.Owners                     // find the owner of a key; nil: every instance decides for all keys

	// Together returns the context of a request to the store for several calls, which have the contexts calls, so that
	// the traces of all of them include the request. It must not block. nil: the request has the context of the first
	// call.
	Together func(ctx context.Context, calls []context.Context) context.Context
}

// Observer has functions that the engine calls. A nil one is not called. They must not block, and must not keep a decision
// or a policy.
type Observer struct {
	// Decided is called with every decision, also with those that a failure of the store prevented, which are degraded.
	// cost is the demand's cost in units.
	Decided func(op count.Op, key store.Key, cost int64, d *count.Decision)
	// Called is called with the outcome of a call, once for each of its demands. A call that another demand or a derived
	// policy denies is denied for all its demands.
	Called func(op count.Op, p *policy.Policy, outcome count.Outcome)
	// Confirmed and Refunded are called once with the units of a key under a policy that are confirmed or refunded.
	Confirmed, Refunded func(policy string, key store.Key, units int64)
	// Blocked is called with a block that this instance makes: its end, and its number in a row.
	Blocked func(policy string, key store.Key, until store.Instant, strikes int)
	// Unblocked is called with a block that a reset by this instance ends early.
	Unblocked func(policy string, key store.Key)
	// Relented is called with denials that Decided is not called with: those by conversions, in a call that then passed
	// under demands derived for that case.
	Relented func(key store.Key, d *count.Decision)
}

// New returns an engine that counts in s. A nil opts means the zero Options. No policy is in force until SetPolicies.
func New(s store.Store, opts *Options) *Engine {
	if opts == nil {
		opts = &Options{}
	}
	e := &Engine{basis: &basis{settings: opts.settings(), ids: store.NewEventIDs()}}
	e.borrowed.New = func() any { return new(single) }
	var local *exclusive.Decider
	if opts.Local != nil {
		local = exclusive.New(opts.Local, e.ids, e.settings)
	}
	if locking, ok := s.(store.Exclusive); ok {
		e.inMemory, e.decider = true, exclusive.New(locking, e.ids, e.settings)
	} else {
		e.counted = counted.New(s, e.ids, e.settings)
		e.shared = route.New(opts.Owners, e.counted, e.ids, e.settings)
		e.decider = e.shared
	}
	blocks := judge.NewBlocks(e.settings, e.ids, e.decider.Instant)
	if opts.Feed != nil {
		e.news = signals.NewNews(opts.Feed, e.ids, e.settings.Timing, e.heard, blocks.StillTrue)
		blocks.News = e.news
	}
	e.judge = &judge.Judge{Settings: e.settings, Decider: e.decider, Blocks: blocks, Local: local}
	if e.counted != nil {
		e.judge.Denials = e.counted.Denials
	}
	e.judge.Observe, e.judge.ObserveCall = opts.Observer.Decided, opts.Observer.Called
	e.plans = &plans{settings: e.settings, identifiers: opts.Identifiers, inMemory: e.inMemory, local: local != nil, news: e.news}
	e.plans.inForce.Store(new(planSet))
	e.Overrides = &Overrides{basis: e.basis, plans: e.plans, known: overrides.Set{Opts: e.settings}, news: e.news}
	e.charger = &charger{plans: e.plans, overrides: &e.Overrides.known}
	teller := &teller{basis: e.basis, blocks: blocks, news: e.news}
	e.settings.GivenBack = teller.gaveBack
	e.explainer = &explainer{basis: e.basis, store: s, charger: e.charger, judge: e.judge}
	e.resets = &resets{teller: teller, plans: e.plans, local: local}
	e.claimed = newClaimed(e.basis, s, opts.Feed, e.plans, e.judge, teller)
	e.resets.marks = e.marks
	e.refunds.confirmed, e.refunds.refunded = opts.Observer.Confirmed, opts.Observer.Refunded
	e.relented, blocks.Made, teller.unblocked = opts.Observer.Relented, opts.Observer.Blocked, opts.Observer.Unblocked
	return e
}

// settings returns o as the settings of all deciders.
func (o *Options) settings() *demand.Settings {
	return demand.Settings{
		Keyer: o.Keyer, AlsoRead: o.AlsoRead, Consistency: o.Consistency, Serial: o.Serial, Datacenter: o.Datacenter,
		StoreTimeout: o.StoreTimeout, ClockTolerance: o.ClockTolerance, ClockError: o.ClockError, Now: o.Now, Skewed: o.Skewed,
		SyncInterval: o.SyncInterval, MaxKeys: o.MaxKeys, Jitter: o.Jitter, News: o.Feed != nil, Together: o.Together,
	}.WithDefaults()
}

// SetPolicies puts policies in force in place of all earlier ones, without a version. If one of them has a Problem or
// two share a name, it changes nothing and returns an error with the policy's name.
func (e *Engine) SetPolicies(policies []policy.Policy) error { return e.SetVersion(0, policies) }

// SetVersion is SetPolicies for a version of the policies that instances share: 1 or more.
func (e *Engine) SetVersion(version int64, policies []policy.Policy) error {
	return e.plans.set(version, policies)
}

// MoveTo replaces Options.Datacenter by the local data centre's name, once the store has reported it. From then on,
// guarantees that hold within a data centre use other keys. The store must not answer requests before MoveTo, nor for a
// store timeout after it, because calls in progress have the old keys.
func (e *Engine) MoveTo(datacenter string) error { return e.plans.moveTo(datacenter) }

// Policies returns the policies in force, sorted by name, with all defaults filled in, those of Options included. They are
// shared and must not be changed.
func (e *Engine) Policies() []*policy.Policy {
	_, policies := e.Version()
	return policies
}

// Version returns the version in force, 0 for policies without one, and its policies as Policies does.
func (e *Engine) Version() (version int64, policies []*policy.Policy) {
	set := e.plans.inForce.Load()
	return set.version, set.policies()
}

// Policy returns the policy called name, with all defaults filled in. It is shared and must not be changed.
func (e *Engine) Policy(name string) (*policy.Policy, bool) {
	p := e.plans.inForce.Load().byName[name]
	if p == nil {
		return nil, false
	}
	return &p.Policy, true
}

// InMemory reports whether the store is in this process's memory, so that no decision waits for another process.
func (e *Engine) InMemory() bool { return e.inMemory }

// Promise returns the scope within which p's limits are never exceeded, and a sentence about the exceptions. For a store in
// this process's memory, it is the cluster, without an exception.
func (e *Engine) Promise(p *policy.Policy) (scope policy.Scope, caveat string) {
	if e.inMemory {
		return policy.ScopeCluster, ""
	}
	if p.Guarantee == policy.GuaranteeLocal {
		return policy.ScopeNone, counted.LocalPromise(p, e.settings.Serial)
	}
	if p.InCells() {
		return e.settings.Serial.Scope(), e.settings.Serial.Caveat()
	}
	return p.Consistency.Scope(), p.Consistency.Caveat()
}

// Run does the background work until ctx ends: it ends reservations, takes back units that were not admitted, carries news
// between instances, and writes units that were admitted from memory. Then it gives back the units that are held in counters
// and buckets, for at most a second, and finishes take-backs, news and writes. That takes up to three store timeouts or, if
// units are subtracted from counters, a store timeout and two seconds. It returns nil.
func (e *Engine) Run(ctx context.Context) error {
	var all sync.WaitGroup
	reserving := ctx
	ctx, stopOthers := context.WithCancel(context.WithoutCancel(ctx)) // they must finish the refunds of held units
	all.Go(func() { defer stopOthers(); e.reservations.pending.Run(reserving) })
	all.Go(func() { e.judge.Blocks.Run(ctx) })
	all.Go(func() { e.Overrides.known.Run(ctx, e.settings) })
	all.Go(func() { e.decider.Run(ctx) })
	if e.news != nil {
		all.Go(func() { e.news.Run(ctx) })
	}
	all.Wait()
	return nil
}

// Behind returns figures on the write-behind.
func (e *Engine) Behind() counted.Behind {
	if e.counted == nil {
		return counted.Behind{}
	}
	return e.counted.Behind()
}

// Flush writes admitted units that are not written yet, until ctx ends.
func (e *Engine) Flush(ctx context.Context) {
	if e.counted != nil {
		e.counted.Flush(ctx)
	}
}

// Unload writes the units of small keys, which are only in e's memory, under policies with a WriteFrom, if moves returns
// true for the key. From then on, e writes all units of these keys. A nil moves means that no keys move any more. Unload
// returns once the units are written, or with an error when ctx ends or the store has accepted no write for ten seconds.
func (e *Engine) Unload(ctx context.Context, moves func(store.Key) bool) error {
	if e.counted == nil {
		return nil
	}
	return e.counted.Unload(ctx, moves)
}

// MayUnload reports whether e has small keys, or a policy in force may make keys small.
func (e *Engine) MayUnload() bool {
	return e.counted != nil && (e.counted.HasSmall() || e.plans.inForce.Load().keepsSmall())
}

// Remembered returns the number of keys whose states e has in memory as their owner.
func (e *Engine) Remembered() int {
	if e.counted == nil {
		return 0
	}
	return e.counted.Remembered()
}

// DecideForPeer decides c, which another instance handed on, by its Definition. Errors are those of Take, and
// owner.ErrRefused. It calls no observer and makes no blocks: the instance that the caller asked does both.
func (e *Engine) DecideForPeer(ctx context.Context, c *demand.Charge) (err error) {
	if e.shared == nil {
		return owner.ErrRefused
	}
	if c.Definition != nil {
		if c.Plan, err = e.plans.planBy(c.Definition, c.Key); err != nil {
			return err
		}
	}
	return e.shared.DecideForPeer(ctx, c)
}

// ColdReads returns the number of e's decisions as an owner for which it had to read the key from the store, because the
// key was not in memory.
func (e *Engine) ColdReads() int64 {
	if e.counted == nil {
		return 0
	}
	return e.counted.ColdReads()
}
