package replay

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// linked are policies whose counts depend on each other's denials, because one derives the other or both are asked for
// together. A policy is linked with itself if more than one limit's count decides a denial, because several limits block
// or there are rules about numbers.
type linked struct {
	members []*inForce
	runs    []run
}

// link finds out which policies of s are linked. together has the names of policies that are asked for together.
func (s *side) link(together []string) error {
	group := make(map[string]*linked)
	join := func(a, b string) {
		into, from := group[a], group[b]
		if into == nil {
			into = &linked{members: []*inForce{s.policies[a]}}
			group[a] = into
		}
		if a == b || into == from {
			return
		}
		more := []*inForce{s.policies[b]}
		if from != nil {
			more = from.members
		}
		for _, p := range more {
			group[p.Name] = into
		}
		into.members = append(into.members, more...)
	}
	for _, p := range s.engine.Policies() {
		if p.BlockFor > 0 && len(p.Limits) > 1 || !p.Countries.IsZero() || !p.NumberTypes.IsZero() {
			join(p.Name, p.Name)
		}
		for _, d := range p.Derive {
			join(p.Name, d.Policy)
		}
	}
	for _, name := range together {
		if s.policies[name] == nil {
			return fmt.Errorf("%w: %q", limiter.ErrUnknownPolicy, name)
		}
		join(together[0], name)
	}
	for name, l := range group {
		s.policies[name].linked = l
	}
	return nil
}

// linkOf returns the linked policies that those of subjects belong to; nil if there is one subject, whose policy is not
// linked.
func linkOf(subjects []subject) (*linked, error) {
	first := subjects[0].policy.linked
	for i := range subjects[1:] {
		if p := subjects[1+i].policy; first == nil || p.linked != first {
			return nil, fmt.Errorf("policies %q and %q are asked for together, and Together does not say so", subjects[0].policy.Name, p.Name)
		}
	}
	return first, nil
}
