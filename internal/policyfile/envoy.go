package policyfile

import "slices"

// Envoy maps what Envoy asks about to policies. The zero Envoy knows no domain.
type Envoy struct {
	Headers EnvoyHeaders
	Domains []EnvoyDomain // each of another name
}

// EnvoyHeaders are the names of the headers that Envoy is told to add to responses;
// empty ones are not added.
type EnvoyHeaders struct {
	Limit      string // units of the tightest limit's window
	Remaining  string // units that remain of it
	Reset      string // whole seconds until it is whole again
	RetryAfter string // whole seconds until the request would pass; on denials only
}

// EnvoyDomain is a tree of descriptors. A descriptor's entries lead from its root, one
// step each.
type EnvoyDomain struct {
	Name        string
	Together    bool // a request uses all the limits that it asks about, or none
	Descriptors []EnvoyDescriptor
}

// EnvoyDescriptor is one step, and the rule of descriptors that end there. Of one
// parent, no two are of one key and value.
type EnvoyDescriptor struct {
	Key        string
	Value      string   // each * stands for any text; empty: any value that no other step of the key names
	Policy     string   // that decides; empty: none
	Unlimited  bool     // there is no limit, and that is said
	Name       string   // of the limit, for Replaces and for answers; empty: none
	Replaces   []string // names of limits that do not hold for a request of which this one holds
	Quota      bool     // a request is denied for lack of quota only if all its quotas lack it
	Shared     bool     // all values that match Value are counted as one
	Identifier []string // keys of the entries whose values are counted for; nil: all, with domain and keys

	Descriptors []EnvoyDescriptor
}

// Each calls visit for all descriptors of d, each before those below it, with the keys
// of the entries that lead to it, its own last.
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
