package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/handon"
	"github.com/ratelimitd/ratelimitd/internal/limiter/held"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Engine decides. It is safe for concurrent use; make one with New.
type Engine struct {
	// Overrides has what operators decide otherwise than a policy says.
	Overrides *Overrides

	*basis
	shared    *handon.Router   // the decider over a store that instances share; else nil
	counted   *counted.Decider // what that decides by here; else nil
	plans     *plans
	charger   *charger
	judge     *judge.Judge
	explainer *explainer
	news      *signals.News // nil: there is no feed
	resets    *resets
	relented  RelentObserver // nil: nobody learns of that
	borrowed  sync.Pool      // of *single

	claimed // what may happen only once
}

// Options of an Engine. The zero value suits a store with one copy in this
// process.
type Options struct {
	Keyer          keys.Keyer                        // of the keys that are written under
	AlsoRead       []keys.Keyer                      // of keys that are read as well: other instances write under them, or did
	Consistency    policy.Consistency                // for policies that do not say; zero: LOCAL_QUORUM for both
	Serial         policy.Level                      // of compare-and-set: LevelSerial or LevelLocalSerial; zero: the latter
	Datacenter     string                            // name of the local one; part of the key of promises that end at its border; see MoveTo
	ClockTolerance time.Duration                     // how far instances' clocks may be from the store's; whole milliseconds
	StoreTimeout   time.Duration                     // the longest a decision waits for the store; zero: DefaultStoreTimeout
	ClockError     time.Duration                     // how far the clocks of the store's own nodes may differ; zero: one second
	Now            func() time.Time                  // nil: the system's clock; one that is set is gone by within a millisecond
	Skewed         func() bool                       // whether this instance's clock is beyond the tolerance now; nil: never
	Local          store.Exclusive                   // decides for OnStoreErrorLocal, else those policies deny
	SyncInterval   time.Duration                     // after which what is admitted under GuaranteeLocal is written; zero: DefaultSyncInterval
	MaxKeys        int                               // whose counts an owner remembers at most, some 128 or more; zero: DefaultMaxKeys
	Feed           store.Feed                        // carries resets, refunds and blocks between instances; nil: they stay
	Observer       Observer                          // learns of every decision; nil: nobody
	ObserveCall    ObserveCall                       // learns of every call; nil: nobody
	Identifiers    policy.Identifiers                // reads those of policies with Normalize, else such policies are refused
	Jitter         func(time.Duration) time.Duration // how long instances that met wait to part, below what it is given; nil: at random
	Owners         owner.Owners                      // say which instance decides for a key; nil: every instance does, for all keys

	// AwaitPolicies puts a version of the policies in force that another instance has, or a later one. It
	// returns when they are, or says why they are not. nil: policies have no versions.
	AwaitPolicies func(ctx context.Context, version int64) error

	// Together returns ctx for what the store is asked for several calls at once, which have the contexts calls: so
	// that a trace of any of them has it. It must not block. nil: it is asked by the context of the first.
	Together func(ctx context.Context, calls []context.Context) context.Context
}

// Observer learns of every decision, those that the store's failure prevented
// among them: denied and degraded. cost is what was asked for, in units. It must not
// block, and must not keep d.
type Observer interface {
	Observe(op count.Op, key store.Key, cost int64, d *count.Decision)
}

// ObserveCall learns what became of a call, once for each of its demands: of one that is denied because of
// another demand or of a derived policy, that it was denied. It must not block, and must not keep p.
type ObserveCall func(op count.Op, p *policy.Policy, outcome count.Outcome)

// ConfirmObserver is an Observer that learns of confirmations as well: how many units of a key under a policy are
// confirmed, once. It must not block.
type ConfirmObserver interface {
	Confirmed(policy string, key store.Key, units int64)
}

// RefundObserver is an Observer that learns of refunds as well: how many units of a key under a policy are given back,
// once. It must not block.
type RefundObserver interface {
	Refunded(policy string, key store.Key, units int64)
}

// BlockObserver is an Observer that learns of blocks as well: of those that this instance makes, with when they end and how
// many there were in a row, and of those that a reset which this instance was asked for ends before their time. It must not
// block.
type BlockObserver interface {
	Blocked(policy string, key store.Key, until store.Instant, strikes int)
	Unblocked(policy string, key store.Key)
}

// RelentObserver is an Observer that learns as well of decisions it was not told of: conversions that denied a call, which
// then passed by what its policies derive for that case. It must not block, and must not keep d.
type RelentObserver interface {
	Relented(key store.Key, d *count.Decision)
}

// New returns an engine that counts in store. A nil opts means the zero Options.
// No policy is in force until SetPolicies.
func New(s store.Store, opts *Options) *Engine {
	if opts == nil {
		opts = &Options{}
	}
	e := &Engine{basis: &basis{settings: opts.settings(), ids: store.NewEventIDs()}}
	e.borrowed.New = func() any { return new(single) }
	var local *held.Decider
	if opts.Local != nil {
		local = held.New(opts.Local, e.ids, e.settings)
	}
	if still, ok := s.(store.Exclusive); ok {
		e.inMemory, e.decider = true, held.New(still, e.ids, e.settings)
	} else {
		e.counted = counted.New(s, e.ids, e.settings)
		e.shared = handon.New(opts.Owners, e.counted, e.ids, e.settings)
		e.decider = e.shared
	}
	blocks := judge.NewBlocks(e.settings, e.ids, e.decider.Instant)
	if opts.Feed != nil {
		e.news = signals.NewNews(opts.Feed, e.ids, e.settings.Timing, e.heard, blocks.StillTrue)
		blocks.News = e.news
	}
	e.judge = &judge.Judge{Settings: e.settings, Decider: e.decider, Blocks: blocks, Local: local}
	e.judge.ObserveCall = opts.ObserveCall
	if opts.Observer != nil {
		e.judge.Observe = opts.Observer.Observe
	}
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
	e.refunds.confirmed, _ = opts.Observer.(ConfirmObserver)
	e.refunds.refunded, _ = opts.Observer.(RefundObserver)
	e.relented, _ = opts.Observer.(RelentObserver)
	if observer, ok := opts.Observer.(BlockObserver); ok {
		blocks.Made, teller.unblocked = observer.Blocked, observer.Unblocked
	}
	return e
}

// settings returns what o says to all that decides.
func (o *Options) settings() *demand.Settings {
	return demand.Settings{
		Keyer: o.Keyer, AlsoRead: o.AlsoRead, Consistency: o.Consistency, Serial: o.Serial, Datacenter: o.Datacenter,
		StoreTimeout: o.StoreTimeout, ClockTolerance: o.ClockTolerance, ClockError: o.ClockError, Now: o.Now, Skewed: o.Skewed,
		SyncInterval: o.SyncInterval, MaxKeys: o.MaxKeys, Jitter: o.Jitter, News: o.Feed != nil, Together: o.Together,
		AwaitPolicies: o.AwaitPolicies,
	}.WithDefaults()
}

// SetPolicies puts policies in force in place of all earlier ones, without a version. It
// changes nothing when one of them has a Problem or two share a name; the error names it.
func (e *Engine) SetPolicies(policies []policy.Policy) error { return e.SetVersion(0, policies) }

// SetVersion is SetPolicies for a version of the policies that instances share: 1 or more.
func (e *Engine) SetVersion(version int64, policies []policy.Policy) error {
	return e.plans.set(version, policies)
}

// Policies returns the policies in force by name, with all defaults filled in,
// the server's levels too. They are shared: not to be changed.
func (e *Engine) Policies() []*policy.Policy {
	_, policies := e.Version()
	return policies
}

// Version returns the version in force, 0 for policies without one, and what Policies
// returns of it.
func (e *Engine) Version() (version int64, policies []*policy.Policy) {
	set := e.plans.inForce.Load()
	return set.version, set.policies()
}

// Policy returns the policy called name, with all defaults filled in. It is
// shared: not to be changed.
func (e *Engine) Policy(name string) (*policy.Policy, bool) {
	p := e.plans.inForce.Load().byName[name]
	if p == nil {
		return nil, false
	}
	return &p.Policy, true
}

// InMemory reports whether the store is in this process's memory: no decision waits for
// anybody.
func (e *Engine) InMemory() bool { return e.inMemory }

// Promise says how far "never more than the limit" holds for p, and in a sentence
// what it does not cover; a store with a single copy holds it everywhere.
func (e *Engine) Promise(p *policy.Policy) (scope policy.Scope, caveat string) {
	if e.inMemory {
		return policy.ScopeCluster, ""
	}
	if p.Guarantee == policy.GuaranteeLocal {
		return policy.ScopeNone, counted.LocalPromise(p, e.settings.Serial)
	}
	inCells, elsewhere := p.Kept()
	scope, caveat = p.Consistency.Scope(), p.Consistency.Caveat()
	switch {
	case p.Guarantee == policy.GuaranteeSerial || !elsewhere:
		return e.settings.Serial.Scope(), e.settings.Serial.Caveat()
	case inCells && scope == policy.ScopeCluster:
		return e.settings.Serial.Scope(), e.settings.Serial.Caveat()
	}
	return scope, caveat
}

// Run does what must happen beside the decisions, until ctx ends: it ends reservations,
// takes back what was counted and not admitted, carries news between instances, and writes
// behind what was admitted from memory. Then it gives back what is reserved in counters and
// buckets, for a second at most, and does what is still to be taken back, told or written,
// which takes up to three store timeouts or, where units are subtracted from counters, one
// and two seconds. It returns nil.
func (e *Engine) Run(ctx context.Context) error {
	var all sync.WaitGroup
	reserving := ctx
	ctx, rest := context.WithCancel(context.WithoutCancel(ctx)) // the rest ends later: it finishes what is given back
	all.Go(func() { defer rest(); e.reservations.pending.Run(reserving) })
	all.Go(func() { e.judge.Blocks.Run(ctx) })
	all.Go(func() { e.Overrides.known.Run(ctx, e.settings) })
	all.Go(func() { e.decider.Run(ctx) })
	if e.news != nil {
		all.Go(func() { e.news.Run(ctx) })
	}
	all.Wait()
	return nil
}

// Behind returns how far the store is behind what was admitted.
func (e *Engine) Behind() counted.Behind {
	if e.counted == nil {
		return counted.Behind{}
	}
	return e.counted.Behind()
}

// Flush writes what was admitted and is not written yet, until ctx ends.
func (e *Engine) Flush(ctx context.Context) {
	if e.counted != nil {
		e.counted.Flush(ctx)
	}
}

// Remembered returns of how many keys e remembers, as their owner, all that is counted.
func (e *Engine) Remembered() int {
	if e.counted == nil {
		return 0
	}
	return e.counted.Remembered()
}

// DecideForPeer decides what another instance handed on, and fills in a. Errors are those of
// Take, and ErrRefused. It tells no observer, and blocks nobody: the instance that was asked
// does.
func (e *Engine) DecideForPeer(ctx context.Context, call *owner.Call, a *owner.Answer) error {
	if e.shared == nil {
		return owner.ErrRefused
	}
	p, err := e.plans.planForPeer(ctx, call)
	if err != nil {
		return err
	}
	return e.shared.DecideForPeer(ctx, call, p, a)
}

// ColdReads returns how many decisions e has made as the owner of their key that had to read it from the
// store first, as e remembered nothing of it.
func (e *Engine) ColdReads() int64 {
	if e.counted == nil {
		return 0
	}
	return e.counted.ColdReads()
}
