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

// plans has the plans of the policies in force. All of them change together.
type plans struct {
	settings    *demand.Settings
	identifiers policy.Identifiers // nil: policies with Normalize are refused
	inMemory    bool               // the store is in this process's memory
	local       bool               // there is a store for OnStoreErrorLocal
	news        *signals.News      // its level depends on the scope of the policies' guarantees; nil: there is no feed

	setting sync.Mutex // held while the plans change
	inForce atomic.Pointer[planSet]
	foreign demand.Made[uint64] // plans of definitions that other instances sent, by their prints
}

// set puts policies in force: see Engine.SetVersion.
func (ps *plans) set(version int64, policies []policy.Policy) error {
	ps.setting.Lock()
	defer ps.setting.Unlock()
	return ps.put(version, policies)
}

// put is set for a caller that holds ps.setting.
func (ps *plans) put(version int64, policies []policy.Policy) error {
	plans := make(map[string]*demand.Plan, len(policies))
	for _, p := range policies {
		if found := p.Problems(); len(found) > 0 {
			return fmt.Errorf("policy %q: %w", p.Name, found[0])
		}
		if _, twice := plans[p.Name]; twice {
			return fmt.Errorf("policy %q is there twice", p.Name)
		}
		plans[p.Name] = ps.newPlans(p)
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
		ps.setNewsLevel(plans)
	}
	ps.inForce.Store(&planSet{version, plans})
	return nil
}

// moveTo is Engine.MoveTo.
func (ps *plans) moveTo(datacenter string) error {
	ps.setting.Lock()
	defer ps.setting.Unlock()
	ps.settings.MoveTo(datacenter)
	set := ps.inForce.Load()
	if set.byName == nil { // there are no policies yet
		return nil
	}
	var policies []policy.Policy
	for _, p := range set.policies() {
		policies = append(policies, *p)
	}
	return ps.put(set.version, policies)
}

// newPlans returns the plan of p, with its Local plan.
func (ps *plans) newPlans(p policy.Policy) *demand.Plan {
	made := demand.NewPlan(p, ps.settings, ps.inMemory)
	if ps.local {
		made.Local = demand.NewPlan(p, ps.settings, true)
	}
	return made
}

// planSet has the plans in force, by name. It is immutable. An engine without policies has the zero value.
type planSet struct {
	version int64 // of all plans; 0: they have no version
	byName  map[string]*demand.Plan
}

// plan returns the plan called name, nil if there is none.
func (p *planSet) plan(name string) *demand.Plan { return p.byName[name] }

// policies returns the policies in force, sorted by name.
func (p *planSet) policies() []*policy.Policy {
	policies := make([]*policy.Policy, 0, len(p.byName))
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		policies = append(policies, &p.byName[name].Policy)
	}
	return policies
}

// keepsSmall reports whether a policy has a WriteFrom, so that owners have small keys.
func (p *planSet) keepsSmall() bool {
	for _, plan := range p.byName {
		if plan.WriteFrom > 0 {
			return true
		}
	}
	return false
}

// vary sets p.ByKey: the plans for identifiers for which p's limits have numbers of their own. They have p's keys and count
// in the same places, but each has the definition by which it decides. It sets p.Definition to the one for all other
// identifiers.
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
	p.Definition = ps.newPlans(p.For("")).Definition
	p.ByKey = make(map[store.Key]*demand.Plan, len(values)*len(p.Keys))
	for _, value := range values {
		own := ps.newPlans(p.For(value))
		own.Read, own.Derives, own.HasFallback = p.Read, p.Derives, p.HasFallback
		for _, hash := range p.Keys {
			p.ByKey[hash.Of(keys.Identifier(value))] = own
		}
	}
	return nil
}
