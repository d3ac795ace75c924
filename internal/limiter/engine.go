package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Engine decides. It is safe for concurrent use; make one with New.
type Engine struct {
	opts      Options
	setting   sync.Mutex // held while plans change
	plans     atomic.Pointer[planSet]
	ids       *store.EventIDs
	exclusive *exclusive  // decides over a store that can hold keys still; else nil
	shared    *shared     // decides over one that can't; else nil
	local     *exclusive  // decides for OnStoreErrorLocal; nil: nobody does
	denied    toldDenials // what owners denied
	blocks    *signals.Blocks
	overrides overrides
	news      *signals.News // nil: there is no feed
	claims    *claims       // about policies whose promises end at a data centre's border
	anywhere  *claims       // about all others
	secrets   secrets

	borrowed     sync.Pool    // of *single
	identities   []*keys.Keys // hash identifiers for fingerprints, under every hash key that is known
	reservations *reservations
}

// Options of an Engine. The zero value suits a store with one copy in this
// process.
type Options struct {
	Keyer          keys.Keyer         // of the keys that are written under
	AlsoRead       []keys.Keyer       // of keys that are read as well: other instances write under them, or did
	Consistency    policy.Consistency // for policies that do not say; zero: LOCAL_QUORUM for both
	Serial         policy.Level       // of compare-and-set: LevelSerial or LevelLocalSerial; zero: the latter
	Datacenter     string             // name of the local one; part of the key of promises that end at its border; see MoveTo
	ClockTolerance time.Duration      // how far instances' clocks may be from the store's; whole milliseconds
	StoreTimeout   time.Duration      // the longest a decision waits for the store; zero: DefaultStoreTimeout
	ClockError     time.Duration      // how far the clocks of the store's own nodes may differ; zero: one second
	Now            func() time.Time   // nil: the system's clock; one that is set is gone by within a millisecond
	Skewed         func() bool        // whether this instance's clock is beyond the tolerance now; nil: never
	Local          store.Exclusive    // decides for OnStoreErrorLocal, else those policies deny
	SyncInterval   time.Duration      // after which what is admitted under GuaranteeLocal is written; zero: DefaultSyncInterval
	MaxKeys        int                // whose counts an owner remembers at most, some 128 or more; zero: DefaultMaxKeys
	Feed           store.Feed         // carries resets, refunds and blocks between instances; nil: they stay where they were made
	Observer       Observer           // learns of every decision; nil: nobody
	Identifiers    policy.Identifiers // reads those of policies with Normalize, else such policies are refused
	Owners         Owners             // say which instance decides for a key; nil: every instance does, for all keys

	// AwaitPolicies puts a version of the policies in force that another instance has, or a later one. It
	// returns when they are, or says why they are not. nil: policies have no versions.
	AwaitPolicies func(ctx context.Context, version int64) error

	moved     *atomic.Pointer[string]                 // the Datacenter of Engine.MoveTo; nil: it was not called
	timing    *clock.Timing                           // of what is given above
	keys      *keys.Cache                             // of all policies; an Engine has one
	jitter    func(below time.Duration) time.Duration // how long to wait for instances that met to part; simulations replay it
	forgetful bool                                    // no denial is remembered: simulations see more of the store
}

// DefaultStoreTimeout is the StoreTimeout of Options that give none.
const DefaultStoreTimeout = 500 * time.Millisecond

// Observer learns of every decision, those that the store's failure prevented
// among them: denied and degraded. cost is what was asked for, in units. It must not
// block, and must not keep d.
type Observer interface {
	Observe(op count.Op, key store.Key, cost int64, d *count.Decision)
}

// Demand is what a caller asks for: units of a policy for an identifier.
type Demand struct {
	Policy     string
	Identifier keys.Identifier // 1 to MaxIdentifierLen bytes
	Cost       int64           // units, 1 to MaxCost; 0 means 1
}

// New returns an engine that counts in store. A nil opts means the zero Options.
// No policy is in force until SetPolicies.
func New(s store.Store, opts *Options) *Engine {
	if opts == nil {
		opts = &Options{}
	}
	e := &Engine{opts: opts.withDefaults()}
	e.ids = store.NewEventIDs()
	e.claims = &claims{store: s, ids: e.ids, opts: &e.opts, serial: e.opts.Serial}
	e.anywhere = &claims{store: s, ids: e.ids, opts: &e.opts, serial: policy.LevelSerial}
	e.secrets.claims = e.anywhere
	for _, keyer := range append([]keys.Keyer{e.opts.Keyer}, e.opts.AlsoRead...) {
		e.identities = append(e.identities, keyer.For(keys.KeySpace{Policy: spaceIdentity}))
	}
	e.reservations = newReservations(e)
	if still, ok := s.(store.Exclusive); ok {
		e.exclusive = newExclusive(still, e.ids, &e.opts)
	} else {
		e.shared = newShared(s, e.ids, &e.opts)
		e.denied.opts = &e.opts
	}
	if e.opts.Local != nil {
		e.local = newExclusive(e.opts.Local, e.ids, &e.opts)
	}
	e.overrides.opts = &e.opts
	e.blocks = signals.NewBlocks(signals.MaxBlocks, e.opts.timing)
	if e.opts.Feed != nil {
		e.news = signals.NewNews(e.opts.Feed, e.ids, e.opts.timing, e.heard, e.stillTrue)
	}
	e.plans.Store(new(planSet))
	return e
}

func (o Options) withDefaults() Options {
	if o.StoreTimeout == 0 {
		o.StoreTimeout = DefaultStoreTimeout
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = DefaultSyncInterval
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.ClockError == 0 {
		o.ClockError = time.Second
	}
	o.timing = &clock.Timing{
		StoreTimeout: o.StoreTimeout, Tolerance: o.ClockTolerance, NodeError: o.ClockError, Now: o.Now, Skewed: o.Skewed,
	}
	o.keys, o.moved = new(keys.Cache), new(atomic.Pointer[string])
	if o.jitter == nil {
		o.jitter = rand.N[time.Duration]
	}
	o.Serial = cmp.Or(o.Serial, policy.LevelLocalSerial)
	o.Consistency = o.Consistency.WithDefault(policy.Consistency{Write: policy.LevelLocalQuorum, Read: policy.LevelLocalQuorum})
	return o
}

// SetPolicies puts policies in force in place of all earlier ones, without a version. It
// changes nothing when one of them has a Problem or two share a name; the error names it.
func (e *Engine) SetPolicies(policies []policy.Policy) error { return e.SetVersion(0, policies) }

// SetVersion is SetPolicies for a version of the policies that instances share: 1 or more.
func (e *Engine) SetVersion(version int64, policies []policy.Policy) error {
	e.setting.Lock()
	defer e.setting.Unlock()
	return e.setPolicies(version, policies)
}

// setPolicies is SetVersion for who holds e.setting.
func (e *Engine) setPolicies(version int64, policies []policy.Policy) error {
	plans := make(map[string]*plan, len(policies))
	for _, p := range policies {
		if found := p.Problems(); len(found) > 0 {
			return fmt.Errorf("policy %q: %w", p.Name, found[0])
		}
		if _, twice := plans[p.Name]; twice {
			return fmt.Errorf("policy %q is there twice", p.Name)
		}
		made := e.newPlans(p)
		made.version = version
		plans[p.Name] = made
	}
	if err := e.readIdentifiers(policies, plans); err != nil {
		return err
	}
	if e.news != nil {
		e.reach(plans)
	}
	e.plans.Store(newPlanSet(version, plans))
	return nil
}

// newPlans returns the plan of p, with the one by which it is decided locally.
func (e *Engine) newPlans(p policy.Policy) *plan {
	made := newPlan(p, &e.opts, e.exclusive != nil)
	if e.local != nil {
		made.local = newPlan(p, &e.opts, true)
	}
	return made
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
	set := e.plans.Load()
	policies = make([]*policy.Policy, 0, len(set.byName))
	for _, name := range slices.Sorted(maps.Keys(set.byName)) {
		policies = append(policies, &set.byName[name].Policy)
	}
	return set.version, policies
}

// Policy returns the policy called name, with all defaults filled in. It is
// shared: not to be changed.
func (e *Engine) Policy(name string) (*policy.Policy, bool) {
	p := e.plans.Load().of(name)
	if p == nil {
		return nil, false
	}
	return &p.Policy, true
}

// InMemory reports whether the store is in this process's memory: no decision waits for
// anybody.
func (e *Engine) InMemory() bool { return e.exclusive != nil }

// Promise says how far "never more than the limit" holds for p, and in a sentence
// what it does not cover; a store with a single copy holds it everywhere.
func (e *Engine) Promise(p *policy.Policy) (scope policy.Scope, caveat string) {
	if e.exclusive != nil {
		return policy.ScopeCluster, ""
	}
	if p.Guarantee == policy.GuaranteeLocal {
		return policy.ScopeNone, localPromise(p, e.opts.Serial)
	}
	inCells, elsewhere := p.Kept()
	scope, caveat = p.Consistency.Scope(), p.Consistency.Caveat()
	switch {
	case p.Guarantee == policy.GuaranteeSerial || !elsewhere:
		return e.opts.Serial.Scope(), e.opts.Serial.Caveat()
	case inCells && scope == policy.ScopeCluster:
		return e.opts.Serial.Scope(), e.opts.Serial.Caveat()
	}
	return scope, caveat
}

// Check tells what Take would answer now. It records nothing.
func (e *Engine) Check(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpCheck, d)
}

// Record counts d whatever the limit; the decision is always allowed and says
// where it leaves the caller.
func (e *Engine) Record(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpRecord, d)
}

// Take counts d if every limit of its policy has room for it, and of those that it
// derives, as one step. The decision is that of the tightest.
//
// Errors wrap ErrInvalid, ErrUnknownPolicy, ErrCostTooLarge or, as a StoreError,
// ErrUnavailable and ErrOverloaded; the decision means nothing then.
func (e *Engine) Take(ctx context.Context, d Demand) (count.Decision, error) {
	return e.do(ctx, count.OpTake, d)
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
	all.Go(func() { defer rest(); e.reservations.run(reserving) })
	all.Go(func() { e.blocks.Run(ctx) })
	all.Go(func() { e.overrides.run(ctx, &e.opts) })
	if e.shared != nil {
		all.Go(func() { e.shared.counted.takeBacks.Run(ctx) })
		all.Go(func() { e.shared.counted.behind.run(ctx) })
	}
	if e.news != nil {
		all.Go(func() { e.news.Run(ctx) })
	}
	all.Wait()
	return nil
}

func (e *Engine) store() store.Store {
	if e.exclusive != nil {
		return e.exclusive.store
	}
	return e.shared.store
}

func (e *Engine) now() store.Instant { return e.opts.timing.Instant() }

// instant is now by a clock that others go by as well: the error says that it is beyond
// the tolerance.
func (e *Engine) instant() (store.Instant, error) {
	if e.exclusive != nil {
		return e.now(), nil
	}
	return e.opts.timing.Checked()
}

func (e *Engine) do(ctx context.Context, op count.Op, d Demand) (decision count.Decision, err error) {
	one := e.borrow()
	c := &one.charges[0]
	parts, err := e.charge(e.plans.Load(), c, op, &d)
	switch {
	case err != nil:
	case parts != nil:
		decision, err = e.doDerived(ctx, op, &d)
	default:
		c.still, c.mayBeginAnew = &one.still, true
		e.decide(ctx, c)
		if beginsAnew(c.err) {
			decision, err = e.doDerived(ctx, op, &d)
			break
		}
		e.tell(c)
		decision, err = c.decision, c.err
	}
	e.release(one)
	return decision, err
}

// doDerived is do for a demand that derives others, or whose policies have changed meanwhile.
func (e *Engine) doDerived(ctx context.Context, op count.Op, d *Demand) (count.Decision, error) {
	answer, err := e.Do(ctx, &Call{Op: op, Demands: []Demand{*d}})
	return answer.Decision, err
}

// tell says in c's decision which override decided it, and tells the observer.
func (e *Engine) tell(c *charge) {
	c.tellOverride()
	e.observe(c)
}

func (e *Engine) observe(c *charge) {
	if e.opts.Observer == nil {
		return
	}
	op := c.op
	if op == count.OpReserve {
		op = count.OpCheck
	}
	e.opts.Observer.Observe(op, c.key, c.cost, &c.decision)
}

// checkCost refuses costs that are out of range and, unless they are recorded
// whatever the limit, those that could never pass.
func (p *plan) checkCost(op count.Op, cost int64) error {
	if cost < 1 || cost > policy.MaxCost {
		return &FieldError{Field: "cost", Detail: fmt.Sprintf("%d is out of range: use 1 to %d", cost, int64(policy.MaxCost))}
	}
	if op == count.OpRecord || p.Mode != policy.ModeEnforce {
		return nil
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; cost > r.Capacity && r.Limit.Limit > 0 {
			return fmt.Errorf("%w: cost %d under limit %q of %d units", ErrCostTooLarge, cost, r.Name, r.Capacity)
		}
	}
	return nil
}

// decide decides one charge, and fills in its decision and error.
func (e *Engine) decide(ctx context.Context, c *charge) {
	p := c.plan
	if p.Mode == policy.ModeOff {
		c.decision = p.Unasked()
		return
	}
	if c.told || e.decideUnasked(c) {
		return
	}
	asked := e.asking(p)
	e.ask(ctx, c)
	switch {
	case tooEarly(c.err), beginsAnew(c.err): // nobody failed: it is to be decided once more
		c.decision = p.Unasked()
	case c.err != nil:
		c.decision, c.err = e.onStoreError(ctx, c, c.err)
	default:
		e.punish(c, &c.decision, asked)
		e.remember(ctx, c, &c.decision)
	}
}

// decideUnasked decides c if nobody has to be asked what is counted: by an override to
// allow or to block or, where there is none, by a block.
func (e *Engine) decideUnasked(c *charge) (decided bool) {
	return e.decideOverridden(c) || e.decideBlocked(c)
}

// recallDenial decides c if what is remembered of its key leaves no room.
func (e *Engine) recallDenial(c *charge) (decided bool) {
	if e.shared == nil {
		return false
	}
	asked := e.asking(c.plan)
	now, err := e.instant()
	if err != nil || !e.toldDenied(c) && !e.shared.recallDenial(&c.decision, &c.target, c.op, c.cost, now) {
		return false
	}
	e.punish(c, &c.decision, asked)
	return true
}

// deniedUnasked reports whether what is known without asking denies charges, which stand
// or fall together, so that nothing of them is counted whatever the others say. Those that
// deny are decided then.
func (e *Engine) deniedUnasked(charges []charge) (denied bool) {
	if slices.ContainsFunc(charges, func(c charge) bool { return c.opIf(true) != count.OpCheck }) {
		return false
	}
	for i := range charges {
		c := &charges[i]
		c.told = c.plan.Mode == policy.ModeEnforce && (e.decideUnasked(c) || e.recallDenial(c)) && !c.decision.WouldAllow
		denied = denied || c.told
	}
	return denied
}

func (e *Engine) ask(ctx context.Context, c *charge) {
	if e.exclusive == nil && e.opts.Owners != nil && c.isPlain() {
		e.byOwner(ctx, c) // by whose clock it is decided
		return
	}
	now, err := e.instant()
	switch {
	case err != nil:
		c.err = err
	case e.exclusive != nil:
		e.exclusive.decide(ctx, c, now)
	case e.opts.Owners == nil:
		e.shared.decide(ctx, c, now)
	default:
		e.decideAsGuest(ctx, c, now)
	}
}

// remember counts in this instance's own store what it let through: that is what it
// goes by should the shared one fail.
func (e *Engine) remember(ctx context.Context, c *charge, d *count.Decision) {
	if c.plan.OnStoreError == policy.OnStoreErrorLocal && e.local != nil && d.Recorded == count.RecordedYes {
		e.local.decide(ctx, c.locally(count.OpRecord), e.now())
	}
}

// locally returns c as this instance's own store decides it.
func (c *charge) locally(op count.Op) *charge {
	return &charge{target: target{plan: c.plan.local, key: c.key}, op: op, cost: c.cost, hold: c.hold, still: c.still}
}

// onStoreError answers c in the store's place as its policy says.
func (e *Engine) onStoreError(ctx context.Context, c *charge, cause error) (count.Decision, error) {
	failed := &StoreError{Recorded: count.RecordedNo, Err: cause}
	if already := (*StoreError)(nil); errors.As(cause, &already) {
		failed = already
	}
	if c.op == count.OpCheck {
		failed.Recorded = count.RecordedNo
	}
	p := c.plan
	switch {
	case p.OnStoreError == policy.OnStoreErrorAllow || p.Mode == policy.ModeShadow:
		d := p.Unasked()
		d.Degraded, d.Recorded = true, failed.Recorded
		return d, nil
	case e.knownFull(c):
		c.decision.Degraded, c.decision.Recorded = true, failed.Recorded
		return c.decision, nil
	case p.OnStoreError == policy.OnStoreErrorLocal && e.local != nil:
		local := c.locally(c.op)
		e.local.decide(ctx, local, e.now())
		if local.err != nil {
			return p.refused(failed), failed
		}
		d := local.decision
		d.Policy, d.Degraded, d.Recorded, d.Entry = &p.Policy, true, failed.Recorded, count.Entry{}
		return d, nil
	}
	return p.refused(failed), failed
}

// refused returns the decision to deny because the store failed.
func (p *plan) refused(failed *StoreError) count.Decision {
	d := p.Unasked()
	d.Allowed, d.WouldAllow, d.Remaining = false, false, 0
	d.Degraded, d.Recorded = true, failed.Recorded
	return d
}
