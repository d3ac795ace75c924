package policyfile

import "slices"

// Envoy maps the descriptors of Envoy to policies. The zero Envoy has no domain.
type Envoy struct {
	Headers EnvoyHeaders
	Domains []EnvoyDomain // with different names
}

// EnvoyHeaders are the names of the headers for Envoy to add to responses. Those with an empty name are not added.
type EnvoyHeaders struct {
	Limit      string // units of the tightest limit's window
	Remaining  string // remaining units of that
	Reset      string // whole seconds until the limit is unused
	RetryAfter string // whole seconds until the request would pass; on denials only
}

// EnvoyDomain is a tree of descriptors. A descriptor's entries lead from its root, one
// step each.
type EnvoyDomain struct {
	Name        string
	Together    bool // a request uses all the limits that it asks about, or none
	Descriptors []EnvoyDescriptor
}

// EnvoyDescriptor is one step, and the rule of descriptors that end there. Steps with the same parent differ in key or
// value.
type EnvoyDescriptor struct {
	Key        string
	Value      string   // each * stands for any text; empty: any value without a step of its own
	Policy     string   // that decides; empty: none
	Unlimited  bool     // there is no limit, and answers say so
	Name       string   // of the limit, for Replaces and for answers; empty: none
	Replaces   []string // names of limits that do not apply to a request to which this one applies
	Quota      bool     // a request is denied for lack of quota only if all its quotas lack it
	Shared     bool     // all values that match Value count together
	Identifier []string // keys of the entries that make the identifier; nil: all, with domain and keys

	Descriptors []EnvoyDescriptor
}

// Each calls visit for all descriptors of d, parents first, with the keys of the entries that lead to each, its own
// last.
func (d *EnvoyDomain) Each(visit func(path []string, e *EnvoyDescriptor)) {
	eachDescriptor(d.Descriptors, nil, visit)
}

func eachDescriptor(list []EnvoyDescriptor, above []string, visit func([]string, *EnvoyDescriptor)) {
	for i := range list {
		path := append(slices.Clip(above), list[i].Key)
		visit(path, &list[i])
		eachDescriptor(list[i].Descriptors, path, visit)
	}
}
