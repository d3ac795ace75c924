package overrides

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Set is the set of overrides. Every instance has all of them in memory, so an override to allow or to block costs the store
// nothing, and stays in force while the store does not answer. The zero value is empty.
type Set struct {
	Opts     *demand.Settings // nil: clocks are not checked, and prefixes are ignored
	Live     atomic.Int64     // number of overrides, so that callers skip the search if there are none; read-only
	mu       sync.RWMutex
	live     map[store.Key]*live
	known    map[store.Key]store.EventID // the latest change of each key, also kept after the override's end
	prefixes map[string]*prefixes        // the overrides in live that have a prefix, by policy
}

// live is one override. It is immutable except for its cached plans.
type live struct {
	demand.Override
	policy string
	made   store.EventID
	plan   atomic.Pointer[overridePlan] // of OverrideLimits; nil: not made yet
}

// overridePlan is a policy's plan with an override's limits. It is an element of a list: an override of a prefix needs one
// for each number that the policy has for identifiers.
type overridePlan struct {
	from, made *demand.Plan
	next       *overridePlan
	place      int // number of plans after this one in the list
}

// learned is the number of overrides beyond which none are taken from other instances. It exceeds MaxLive, as several
// instances may fill the last places at the same time.
const learned = 2 * MaxLive

// Of returns the override in force at now for any of t's keys, or else that of the longest prefix of id, which is t's
// identifier in its canonical form. It returns nil if there is neither. An override that was dated by a clock that has since
// been set back begins now.
func (o *Set) Of(t *demand.Target, id string, now store.Instant) *live {
	found := o.find(t, id, now)
	if found != nil && o.isAhead(found, now) {
		o.redate(now)
		found = o.find(t, id, now)
	}
	return found
}

// find is Of without regard to clocks that were set back.
func (o *Set) find(t *demand.Target, id string, now store.Instant) *live {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if latest := o.latestOf(t); latest != nil && latest.Until > now {
		return latest
	}
	if len(o.prefixes) == 0 || !t.Plan.Normalize.Form.HasPrefixes() {
		return nil
	}
	return o.prefixes[t.Plan.Name].longest(id, now)
}

func (o *Set) isAhead(of *live, now store.Instant) bool {
	return o.Opts != nil && o.Opts.Timing.IsSetBack(of.Made, now)
}

// redate makes all overrides begin now that were dated by a clock that has since been set back.
func (o *Set) redate(now store.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, of := range o.live {
		if !o.isAhead(of, now) {
			continue
		}
		again := &live{Override: of.Override, policy: of.policy, made: of.made}
		again.Made = now
		if !of.Stays() {
			again.Until -= of.Made - now
		}
		again.plan.Store(of.plan.Load())
		o.put(key, again)
	}
}

// put sets the override of key to of, in place of an earlier one; nil removes it.
func (o *Set) put(key store.Key, of *live) {
	if before := o.live[key]; before != nil && before.Prefix != "" {
		under := o.prefixes[before.policy]
		if under.drop(before.Prefix); len(under.of) == 0 {
			delete(o.prefixes, before.policy)
		}
	}
	if of == nil {
		delete(o.live, key)
		return
	}
	o.live[key] = of
	if of.Prefix == "" {
		return
	}
	under := o.prefixes[of.policy]
	if under == nil {
		under = new(prefixes)
		o.prefixes[of.policy] = under
	}
	under.put(of)
}

// latestOf returns the latest override of t's keys, nil if there is none. The caller holds o.mu.
func (o *Set) latestOf(t *demand.Target) *live {
	latest := o.live[t.Key]
	for _, key := range t.OldKeys {
		if other := o.live[key]; latest == nil || other != nil && other.made.IsAfter(latest.made) {
			latest = other
		}
	}
	return latest
}

// Latest returns the time of the latest change of key that this instance knows.
func (o *Set) Latest(key store.Key) store.Instant {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.known[key].Instant()
}

// Room reports whether there is room for an override of key.
func (o *Set) Room(key store.Key) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	_, has := o.live[key]
	return has || len(o.live) < MaxLive
}

// Learn puts the override of c in force, or ends the one that c ends, unless a later change of its key is known.
func (o *Set) Learn(c *store.Change, now store.Instant) {
	if !o.isNews(c) { // most changes are read more than once
		return
	}
	news := overrideIn(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if news == nil && c.Details != "" { // a later version made the change: the current override stays
		return
	}
	if !o.isLatest(c) {
		return
	}
	if news != nil && news.Prefix != "" && !o.isPrefix(news, c.Key) {
		return
	}
	if news != nil && news.Until <= now {
		news = nil
	}
	if news != nil && o.live[c.Key] == nil && len(o.live) >= learned {
		return
	}
	if o.live == nil {
		o.live, o.known = make(map[store.Key]*live), make(map[store.Key]store.EventID)
		o.prefixes = make(map[string]*prefixes)
	}
	o.known[c.Key] = c.ID
	o.put(c.Key, news)
	o.Live.Store(int64(len(o.live)))
}

// isNews reports whether c is later than all known changes of its key.
func (o *Set) isNews(c *store.Change) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.isLatest(c)
}

// isLatest is isNews for a caller that holds o.mu.
func (o *Set) isLatest(c *store.Change) bool {
	before, heard := o.known[c.Key]
	return !heard || c.ID.IsAfter(before)
}

// isPrefix reports whether key is the key of news' prefix. It is not if the change is of another namespace.
func (o *Set) isPrefix(news *live, key store.Key) bool {
	return o.Opts != nil && o.Opts.PrefixKey(news.policy, news.Prefix) == key
}

// overrideIn returns the override that c puts in force; nil if it ends one, or is of an unknown kind.
func overrideIn(c *store.Change) *live {
	var d Details
	if c.Details == "" || len(c.Details) > store.MaxChangeDetails || json.Unmarshal([]byte(c.Details), &d) != nil {
		return nil
	}
	if d.Kind != policy.OverrideAllow && d.Kind != policy.OverrideBlock && d.Kind != policy.OverrideLimits {
		return nil
	}
	return &live{
		policy: d.Policy, made: c.ID,
		Override: demand.Override{
			Prefix: d.Prefix, Kind: d.Kind, Limits: d.Limits, Until: c.Until, By: d.By, Made: cmp.Or(d.At, c.ID.Instant()),
		},
	}
}

// sweep removes overrides that have ended at now. For keys without an override, it also removes the latest change once no
// older news of the key can arrive.
func (o *Set) sweep(now store.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, of := range o.live {
		if of.Until <= now {
			o.put(key, nil)
		}
	}
	for key, made := range o.known {
		if o.live[key] == nil && made.Instant().Add(2*signals.ChangesLive) < now {
			delete(o.known, key)
		}
	}
	o.Live.Store(int64(len(o.live)))
}

// All returns the overrides in force at now: first those without end, then the others by their end. Of those without
// end, prefixes come first.
func (o *Set) All(now store.Instant) []Keyed {
	o.redate(now)
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]Keyed, 0, len(o.live))
	for key, of := range o.live {
		if of.Until > now {
			list = append(list, Keyed{Key: key, Policy: of.policy, Override: of.Override})
		}
	}
	slices.SortFunc(list, func(a, b Keyed) int {
		byName := cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Prefix, b.Prefix))
		return cmp.Or(cmp.Compare(listedBy(&a), listedBy(&b)), byName, a.Key.Compare(b.Key))
	})
	return list
}

// listedBy returns the value by which o is sorted: its end, or a value below any end if it has none.
func listedBy(o *Keyed) store.Instant {
	switch {
	case o.Stays() && o.Prefix != "":
		return -1
	case o.Stays():
		return 0
	}
	return o.Until
}

// PlanFor returns the plan of base's policy with the override's limits in place of its own. Keys and counts are the
// same, as after a reload that changes only limits. If the limits are not valid, because the policy has changed since,
// it returns base.
func (o *live) PlanFor(base *demand.Plan, planOf func(policy.Policy) *demand.Plan) *demand.Plan {
	known := o.plan.Load()
	for one := known; one != nil; one = one.next {
		if one.from == base {
			return one.made
		}
	}
	made := base
	if policy := base.Overridden(o.Limits); len(policy.Problems()) == 0 {
		made = planOf(policy)
		made.Read, made.Derives, made.HasFallback = base.Read, base.Derives, base.HasFallback
		keepAsMuchAs(made, base)
	}
	first := &overridePlan{from: base, made: made}
	if known != nil && known.place < maxPlans {
		first.next, first.place = known, known.place+1
	}
	o.plan.Store(first)
	return made
}

// keepAsMuchAs makes p keep at least as many events as base, which has the same limits with other numbers. base needs them
// once the override has ended.
func keepAsMuchAs(p *demand.Plan, base *demand.Plan) {
	for i := range p.LogWrites {
		p.LogWrites[i].Keep = max(p.LogWrites[i].Keep, base.LogWrites[i].Keep)
	}
	if p.Local != nil {
		keepAsMuchAs(p.Local, base.Local)
	}
}

// Run removes overrides that have ended, until ctx ends.
func (o *Set) Run(ctx context.Context, opts *demand.Settings) {
	tick := time.NewTicker(sweepOverridesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.sweep(opts.Timing.Instant())
		}
	}
}

// sweepOverridesEvery is the interval in which ended overrides are removed. Until then, each costs a comparison of times.
const sweepOverridesEvery = time.Minute

// Bounds of overrides.
const (
	// Shortest is the shortest override: other instances learn of it within a second.
	Shortest = time.Second
	// Longest is the longest override with an end: an instance that starts reads the news so far back.
	Longest = signals.ChangesLive
	// maxPlans bounds the cached plans of one override, of some 3 KiB each. Beyond it, plans are made anew.
	maxPlans = policy.MaxByValues
	// MaxLive bounds the overrides in force: each takes some 500 bytes, or some 3 KiB with the plan of an
	// OverrideLimits.
	MaxLive = 1 << 15
)

// Details are the details of a store.ChangeOverride. A change that ends an override has none.
type Details struct {
	Policy string                 `json:"policy"`
	Prefix string                 `json:"prefix,omitempty"`
	Kind   policy.OverrideKind    `json:"kind"`
	Limits []demand.LimitOverride `json:"limits,omitempty"`
	By     string                 `json:"by,omitempty"`
	At     store.Instant          `json:"at,omitempty"` // when it was made, if the change's ID is later so as to replace one of a clock ahead
}

// Keyed is an override with its key and policy.
type Keyed struct {
	Key    store.Key
	Policy string
	demand.Override
}
