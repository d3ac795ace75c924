package limiter

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// plans are the policies in force, as they are decided by. They change all at once.
type plans struct {
	settings    *demand.Settings
	identifiers policy.Identifiers // nil: policies with Normalize are refused
	inMemory    bool               // the store is in this process's memory
	local       bool               // there is a store that decides for OnStoreErrorLocal
	news        *signals.News      // that are to reach as far as promises do; nil: there is no feed

	setting sync.Mutex // held while they change
	inForce atomic.Pointer[planSet]
}

// set puts policies in force: see Engine.SetVersion.
func (ps *plans) set(version int64, policies []policy.Policy) error {
	ps.setting.Lock()
	defer ps.setting.Unlock()
	return ps.put(version, policies)
}

// put is set for who holds ps.setting.
func (ps *plans) put(version int64, policies []policy.Policy) error {
	plans := make(map[string]*demand.Plan, len(policies))
	for _, p := range policies {
		if found := p.Problems(); len(found) > 0 {
			return fmt.Errorf("policy %q: %w", p.Name, found[0])
		}
		if _, twice := plans[p.Name]; twice {
			return fmt.Errorf("policy %q is there twice", p.Name)
		}
		made := ps.newPlans(p)
		made.Version = version
		plans[p.Name] = made
	}
	if err := ps.readIdentifiers(policies, plans); err != nil {
		return err
	}
	for _, p := range plans {
		if err := ps.vary(p); err != nil {
			return err
		}
	}
	if ps.news != nil {
		ps.reach(plans)
	}
	ps.inForce.Store(&planSet{version, plans})
	return nil
}

// newPlans returns the plan of p, with the one by which it is decided locally.
func (ps *plans) newPlans(p policy.Policy) *demand.Plan {
	made := demand.NewPlan(p, ps.settings, ps.inMemory)
	if ps.local {
		made.Local = demand.NewPlan(p, ps.settings, true)
	}
	return made
}

// planSet is the plans in force, by name. It does not change. The zero value is of an engine that no policies
// were given yet.
type planSet struct {
	version int64 // of all of them; 0: they have none
	byName  map[string]*demand.Plan
}

// plan returns the plan called name; nil: there is none.
func (p *planSet) plan(name string) *demand.Plan { return p.byName[name] }

// policies returns those in force, by name.
func (p *planSet) policies() []*policy.Policy {
	policies := make([]*policy.Policy, 0, len(p.byName))
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		policies = append(policies, &p.byName[name].Policy)
	}
	return policies
}

// vary makes the plans that decide in p's place where its limits have other numbers. They are the
// same policy: keys, counts and print are those of p.
func (ps *plans) vary(p *demand.Plan) error {
	values := p.ByValues()
	if len(values) == 0 {
		return nil
	}
	if p.Read != nil {
		for _, found := range p.ReadByProblems(p.Read) {
			return fmt.Errorf("policy %q: %w", p.Name, found)
		}
	}
	p.ByKey = make(map[store.Key]*demand.Plan, len(values)*len(p.Keys))
	for _, value := range values {
		own := ps.newPlans(p.For(value))
		own.Print, own.Version, own.Read, own.Derives, own.Relents = p.Print, p.Version, p.Read, p.Derives, p.Relents
		for _, hash := range p.Keys {
			p.ByKey[hash.Of(keys.Identifier(value))] = own
		}
	}
	return nil
}
