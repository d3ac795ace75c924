package envoy

import (
	"cmp"
	"slices"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// mapping finds the rule of a descriptor. It is made once for each file of policies, and immutable.
type mapping struct {
	headers policyfile.EnvoyHeaders
	domains map[string]*domain
}

// domain is one tree of descriptors.
type domain struct {
	name     string
	escaped  string // the beginning of identifiers
	together bool   // a request uses all its limits, or none
	steps    steps
}

// steps are the possible next entries of a descriptor, by the key of the entry.
type steps map[string]*choice

// choice has the next steps by the value of an entry: that for the value itself, else that of the first pattern that
// matches, else that for any value.
type choice struct {
	values   map[string]*step
	patterns []pattern
	other    *step
}

type pattern struct {
	parts []string // of the value, between its stars
	to    *step
}

// step is a node of the tree, to which an entry leads.
type step struct {
	rule  *rule // for descriptors that end here; nil: nothing holds
	below steps
}

// rule has the policy and identifier of a descriptor.
type rule struct {
	policy    string // empty: nothing limits
	unlimited bool
	name      string // of the limit; empty: none
	shown     string // name of the limit in answers
	replaces  []string
	quota     bool

	domain    *domain
	identify  []int    // indexes of the entries that make the identifier; nil: all
	keyed     bool     // identifiers name domain and keys, too
	standIns  []string // by entry: the value that stands for all matching ones; nil: none
	escapedBy []string // by entry: the key in its form in identifiers
}

func newMapping(file *policyfile.Envoy) *mapping {
	if file == nil {
		return &mapping{}
	}
	m := &mapping{headers: file.Headers, domains: make(map[string]*domain, len(file.Domains))}
	for i := range file.Domains {
		from := &file.Domains[i]
		d := &domain{name: from.Name, escaped: escapes.Replace(from.Name), together: from.Together}
		d.steps = d.stepsOf(from.Descriptors, nil)
		m.domains[from.Name] = d
	}
	return m
}

// stepsOf returns the steps for list; above are the descriptors that lead to them.
func (d *domain) stepsOf(list []policyfile.EnvoyDescriptor, above []*policyfile.EnvoyDescriptor) steps {
	if len(list) == 0 {
		return nil
	}
	made := make(steps, len(list))
	for i := range list {
		e := &list[i]
		path := append(slices.Clip(above), e)
		to := &step{rule: d.ruleOf(path), below: d.stepsOf(e.Descriptors, path)}
		if made[e.Key] == nil {
			made[e.Key] = &choice{values: make(map[string]*step)}
		}
		made[e.Key].add(e.Value, to)
	}
	return made
}

func (c *choice) add(value string, to *step) {
	if value == "" {
		c.other = to
		return
	}
	c.values[value] = to // a pattern, too, is a text that can be sent
	if strings.Contains(value, "*") {
		c.patterns = append(c.patterns, pattern{strings.Split(value, "*"), to})
	}
}

// ruleOf returns the rule of the last of path, nil if nothing holds there.
func (d *domain) ruleOf(path []*policyfile.EnvoyDescriptor) *rule {
	e := path[len(path)-1]
	if e.Policy == "" && !e.Unlimited {
		return nil
	}
	r := &rule{
		policy: e.Policy, unlimited: e.Unlimited, name: e.Name, shown: e.Name, replaces: e.Replaces, quota: e.Quota,
		domain: d, keyed: e.Identifier == nil,
	}
	r.shown = cmp.Or(r.shown, e.Policy)
	for i, step := range path {
		r.escapedBy = append(r.escapedBy, escapes.Replace(step.Key))
		if step.Shared {
			r.standIns = append(r.standIns, make([]string, len(path)-len(r.standIns))...)
			r.standIns[i] = step.Value
		}
	}
	for _, key := range e.Identifier {
		r.identify = append(r.identify, last(path, key))
	}
	return r
}

// last returns the index of the last step of path that has key. There is one.
func last(path []*policyfile.EnvoyDescriptor, key string) int {
	for i := len(path) - 1; i > 0; i-- {
		if path[i].Key == key {
			return i
		}
	}
	return 0
}

// find returns the rule for a descriptor with these entries, nil if there is none. Each entry chooses one step: if that
// leads nowhere, no other is tried.
func (d *domain) find(entries []*pb.RateLimitDescriptor_Entry) *rule {
	at := &step{below: d.steps}
	for _, e := range entries {
		c := at.below[e.GetKey()]
		if c == nil {
			return nil
		}
		if at = c.choose(e.GetValue()); at == nil {
			return nil
		}
	}
	return at.rule
}

func (c *choice) choose(value string) *step {
	if to := c.values[value]; to != nil {
		return to
	}
	for i := range c.patterns {
		if matches(c.patterns[i].parts, value) {
			return c.patterns[i].to
		}
	}
	return c.other
}

// matches reports whether value contains all parts in their order, starts with the first and ends with the last. There
// are at least two parts.
func matches(parts []string, value string) bool {
	first, middle, end := parts[0], parts[1:len(parts)-1], parts[len(parts)-1]
	rest, begins := strings.CutPrefix(value, first)
	if !begins {
		return false
	}
	for _, part := range middle {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, end)
}
