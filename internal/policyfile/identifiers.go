package policyfile

import (
	"cmp"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// The members of the maps of normalize and derive.
var (
	normalizeMembers = []member[policy.Normalize]{
		{"e164", "", form(policy.FormE164, e164Members, "write {region: DE} or the like")},
		{"email", "", form(policy.FormEmail, emailMembers, "write {mailbox: true}")},
	}
	e164Members = []member[policy.Normalize]{
		{"region", "give the country of numbers without one, such as DE, or write e164 alone",
			word(func(n *policy.Normalize) *string { return &n.Region })},
	}
	emailMembers = []member[policy.Normalize]{
		{"mailbox", "write true, or email alone", yes(func(n *policy.Normalize) *bool { return &n.Mailbox })},
	}
	deriveMembers = []member[policy.Derivation]{
		{"policy", "name the policy that a part is counted under", name(func(d *policy.Derivation) *string { return &d.Policy })},
		{"from", "name the part, such as country", codec[policy.Derivation]{readPart, writePart}},
		{"when", "", word(func(d *policy.Derivation) *policy.When { return &d.When })},
	}
	partMembers = []member[policy.Derivation]{
		{"prefix", "", number(func(d *policy.Derivation) *int { return &d.Digits })},
		{"ip-prefix", "", number(func(d *policy.Derivation) *int { return &d.IPv4Bits })},
		{"ipv6-prefix", "", nonzero(number, func(d *policy.Derivation) *int { return &d.IPv6Bits }, upTo(policy.MaxIPv6Bits))},
	}
)

// readNormalize reads the name of a form, or a map of one form and its settings.
func readNormalize(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
	if n.Kind != yamlfile.Map {
		word(func(n *policy.Normalize) *policy.Form { return &n.Form }).read(f, n, &p.Normalize)
		return
	}
	readMap(f, n, normalizeMembers, "", &p.Normalize)
	if len(n.Members) != 1 && !n.Partial {
		f.Add(n, "%d forms: write one, such as {e164: {region: DE}}", len(n.Members))
	}
}

func writeNormalize(p *policy.Policy) string {
	return cmp.Or(flow(normalizeMembers, &p.Normalize), string(p.Normalize.Form))
}

// form reads and writes the settings of a form.
func form(form policy.Form, members []member[policy.Normalize], cure string) codec[policy.Normalize] {
	return codec[policy.Normalize]{
		func(f *yamlfile.File, n *yamlfile.Node, into *policy.Normalize) {
			into.Form = form
			readMap(f, n, members, cure, into)
		},
		func(from *policy.Normalize) string { return flow(members, from) },
	}
}

func readDerive(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
	const cure = "write {policy: sms-country, from: country} or the like"
	if !f.Expect(n, yamlfile.List, "start each derivation with a dash") {
		return
	}
	if len(n.Items) == 0 {
		f.Add(n, "there are no derivations: give at least one, or remove it")
	}
	for _, item := range n.Items {
		var d policy.Derivation // is kept even if it is wrong, for the indexes in problems
		readMap(f, item, deriveMembers, cure, &d)
		p.Derive = append(p.Derive, d)
	}
}

func writeDerive(p *policy.Policy) string {
	return list(p.Derive, func(d *policy.Derivation) string { return flow(deriveMembers, d) })
}

// readPart reads the name of a part, or a map with its length.
func readPart(f *yamlfile.File, n *yamlfile.Node, d *policy.Derivation) {
	if n.Kind != yamlfile.Map {
		word(func(d *policy.Derivation) *policy.Part { return &d.From }).read(f, n, d)
		return
	}
	readMap(f, n, partMembers, "", d)
	prefix, ip := n.Member("prefix") != nil, n.Member("ip-prefix") != nil
	switch {
	case prefix && !ip:
		d.From = policy.PartPrefix
	case ip && !prefix:
		d.From = policy.PartIPPrefix
	case !n.Partial:
		f.Add(n, "say one part: {prefix: 5}, or {ip-prefix: 24, ipv6-prefix: 48}")
	}
}

func writePart(d *policy.Derivation) string { return cmp.Or(flow(partMembers, d), string(d.From)) }

// addUnreadable adds a mistake if no identifiers of p can be read, or if its rules name unknown values, unless the
// reason was reported already.
func addUnreadable(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
	at := n.Find("normalize")
	if at == n || anyWrong(f, at) {
		return
	}
	read, err := identifier.Reader(p)
	found := policy.Problem{}
	switch {
	case errors.As(err, &found):
		addProblems(f, n, []policy.Problem{found})
	case err != nil:
		f.Add(at, "%v", err)
	default:
		addProblems(f, n, p.ReadByProblems(read))
	}
}

// anyWrong reports whether a mistake was added for n or a node in it.
func anyWrong(f *yamlfile.File, n *yamlfile.Node) bool {
	if n.Kind == yamlfile.Broken || n.Partial || f.Wrong(n.Path) {
		return true
	}
	for _, m := range n.Members {
		if anyWrong(f, m.Value) {
			return true
		}
	}
	return false
}

// addDeriveProblems adds the mistakes between policies and those that they derive. policies are those in items, in
// their order.
func addDeriveProblems(f *yamlfile.File, items []*yamlfile.Node, policies []policy.Policy) {
	all := policy.DeriveProblems(policies)
	for i, item := range items {
		addProblems(f, item, all[i])
	}
	if len(all) == 0 {
		addUnknownCountries(f, items, policies)
	}
}
