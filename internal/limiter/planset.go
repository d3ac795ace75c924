package limiter

import "github.com/ratelimitd/ratelimitd/internal/limiter/demand"

// planSet is the plans in force, by name. It does not change. The zero value is of an engine that no policies
// were given yet.
type planSet struct {
	version int64 // of all of them; 0: they have none
	byName  map[string]*demand.Plan
	near    [nearPlans]*demand.Plan // one at most of those that share a place
}

// nearPlans is how many are found without hashing their names: most services have fewer.
const nearPlans = 32

func newPlanSet(version int64, byName map[string]*demand.Plan) *planSet {
	p := &planSet{version: version, byName: byName}
	for name, made := range byName {
		p.near[placeOf(name)] = made
	}
	return p
}

// of returns the plan called name, nil for none.
func (p *planSet) of(name string) *demand.Plan {
	if near := p.near[placeOf(name)]; near != nil && near.Name == name {
		return near
	}
	return p.byName[name]
}

// placeOf returns where in near a plan of that name may be.
func placeOf(name string) int {
	n := len(name)
	if n == 0 {
		return 0
	}
	return (n + int(name[0])*5 + int(name[n-1])*3) % nearPlans
}
