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

// Set are those of keys that are decided otherwise than their policy says. They are
// all in memory, of every instance: what is allowed or blocked costs the store nothing, and
// is while it does not answer. The zero value is none.
type Set struct {
	Opts     *demand.Settings // nil: no clock is ever set back, and no prefix is known
	Live     atomic.Int64     // how many there are, for nobody to look further where there are none; only to be read
	mu       sync.RWMutex
	live     map[store.Key]*live
	known    map[store.Key]store.EventID // the latest change of a key, of one that is over too
	prefixes map[string]*prefixes        // by policy; of live, those of a prefix
}

// live is one of overrides. It does not change, but for what is made of it.
type live struct {
	demand.Override
	policy string
	made   store.EventID
	plan   atomic.Pointer[overridePlan] // of OverrideLimits; nil: nobody has asked yet
}

// overridePlan is what an override made of a policy's plan, in a list of plans of that policy: one of a prefix meets as
// many as a limit has numbers by identifier.
type overridePlan struct {
	from, made *demand.Plan
	next       *overridePlan
	place      int // from the end of the list
}

// learned is how many overrides are taken from others, who may each have put in force as
// many as fit at the same time; past it, none are.
const learned = 2 * MaxLive

// Of returns the override of t in force at now, under whichever of its keys; where there is none, that of the longest
// prefix of id, which is t's identifier in its canonical form. Nil: there is neither. One that was made by a clock that was
// set back since begins now.
func (o *Set) Of(t *demand.Target, id string, now store.Instant) *live {
	found := o.find(t, id, now)
	if found != nil && o.isAhead(found, now) {
		o.redate(now)
		found = o.find(t, id, now)
	}
	return found
}

// find is Of, whatever the clock was that made it.
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

// redate has all that were made by a clock that was set back since begin now.
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

// put has of in force for key, in place of an earlier one; nil: none is.
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

// latestOf returns the latest of t's keys, for who holds o.mu.
func (o *Set) latestOf(t *demand.Target) *live {
	latest := o.live[t.Key]
	for _, key := range t.Old {
		if other := o.live[key]; latest == nil || other != nil && other.made.IsAfter(latest.made) {
			latest = other
		}
	}
	return latest
}

// Latest returns when the latest change of key was made, as far as this instance knows.
func (o *Set) Latest(key store.Key) store.Instant {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.known[key].Instant()
}

// Room reports whether key may have an override.
func (o *Set) Room(key store.Key) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	_, has := o.live[key]
	return has || len(o.live) < MaxLive
}

// Learn puts in force what c tells, or ends what it ends, unless something later is known.
func (o *Set) Learn(c *store.Change, now store.Instant) {
	if !o.isNews(c) { // most are read more than once
		return
	}
	news := overrideIn(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if news == nil && c.Details != "" { // of a later version: what is in force stays
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

// isNews reports whether nothing later than c is known of its key.
func (o *Set) isNews(c *store.Change) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.isLatest(c)
}

// isLatest is isNews for who holds o.mu.
func (o *Set) isLatest(c *store.Change) bool {
	before, heard := o.known[c.Key]
	return !heard || c.ID.IsAfter(before)
}

// isPrefix reports whether key is that of the prefix of news: in another namespace it is not.
func (o *Set) isPrefix(news *live, key store.Key) bool {
	return o.Opts != nil && o.Opts.PrefixKey(news.policy, news.Prefix) == key
}

// overrideIn returns what c puts in force; nil for nothing, or nothing that is known here.
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

// sweep forgets what is over at now, and what is known of keys for longer than anything
// of theirs is told.
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

// All returns those in force at now: those without end, and then the one that ends first. Of those without end, prefixes
// are first.
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

// listedBy returns what o is listed by: its end and, where it has none, less than any end.
func listedBy(o *Keyed) store.Instant {
	switch {
	case o.Stays() && o.Prefix != "":
		return -1
	case o.Stays():
		return 0
	}
	return o.Until
}

// PlanFor returns the plan of base's policy with the override's limits in place of its
// own: keys and counts are the same, as after a reload that changes nothing but these. Of
// limits that are none, because the policy is another since, base decides.
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
		made.Read, made.Derives, made.Relents = base.Read, base.Derives, base.Relents
		keepAsMuchAs(made, base)
	}
	first := &overridePlan{from: base, made: made}
	if known != nil && known.place < maxPlans {
		first.next, first.place = known, known.place+1
	}
	o.plan.Store(first)
	return made
}

// keepAsMuchAs has p keep no fewer events than base, which is of the same limits but for
// how much they hold, needs when the override is over.
func keepAsMuchAs(p *demand.Plan, base *demand.Plan) {
	for i := range p.LogWrites {
		p.LogWrites[i].Keep = max(p.LogWrites[i].Keep, base.LogWrites[i].Keep)
	}
	for i := range p.Parts {
		keepAsMuchAs(p.Parts[i], base.Parts[i])
	}
	if p.Local != nil {
		keepAsMuchAs(p.Local, base.Local)
	}
}

// Run forgets what is over, until ctx ends.
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

// sweepOverridesEvery is how soon one that is over is forgotten: until then it costs a
// look at the time.
const sweepOverridesEvery = time.Minute

// Bounds of overrides.
const (
	// Shortest is the shortest: other instances learn of it within a second.
	Shortest = time.Second
	// Longest is the longest of those that end, and how far back an instance reads the news when it starts.
	Longest = signals.ChangesLive
	// maxPlans bounds the plans of one, of some 3 KiB each. Past it they are made anew.
	maxPlans = policy.MaxByValues
	// MaxLive bounds those that are live: each is some 500 bytes, and one of
	// OverrideLimits that is asked for some 3 KiB.
	MaxLive = 1 << 15
)

// Details are the details of a store.ChangeOverride: none for one that ends what was
// there.
type Details struct {
	Policy string                 `json:"policy"`
	Prefix string                 `json:"prefix,omitempty"`
	Kind   policy.OverrideKind    `json:"kind"`
	Limits []demand.LimitOverride `json:"limits,omitempty"`
	By     string                 `json:"by,omitempty"`
	At     store.Instant          `json:"at,omitempty"` // when it was made, if its ID says more: it replaces one by a clock that was ahead
}

// Keyed is an override and whose it is.
type Keyed struct {
	Key    store.Key
	Policy string
	demand.Override
}
