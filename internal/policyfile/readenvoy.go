package policyfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

const wholeDomain = "write domain: and descriptors:"

// The members of the section for Envoy, in the order in which they are written. Those of descriptors are a function,
// since descriptors contain others.
var (
	envoyMembers = []member[Envoy]{
		{"response_headers", "", codec[Envoy]{
			func(f *yamlfile.File, n *yamlfile.Node, e *Envoy) {
				readMap(f, n, headerMembers, "write {limit: RateLimit-Limit, remaining: RateLimit-Remaining} or the like", &e.Headers)
			},
			func(e *Envoy) string { return flow(headerMembers, &e.Headers) },
		}},
		{"domains", "give the domains that Envoy asks about", codec[Envoy]{readDomains, writeDomains}},
	}
	headerMembers = []member[EnvoyHeaders]{
		{"limit", "", parsed(func(h *EnvoyHeaders) *string { return &h.Limit }, headerName, scalar)},
		{"remaining", "", parsed(func(h *EnvoyHeaders) *string { return &h.Remaining }, headerName, scalar)},
		{"reset", "", parsed(func(h *EnvoyHeaders) *string { return &h.Reset }, headerName, scalar)},
		{"retry_after", "", parsed(func(h *EnvoyHeaders) *string { return &h.RetryAfter }, headerName, scalar)},
	}
	domainMembers = []member[EnvoyDomain]{
		{"domain", "give the domain that Envoy's configuration names", name(func(d *EnvoyDomain) *string { return &d.Name })},
		{"together", "", yes(func(d *EnvoyDomain) *bool { return &d.Together })},
		{"descriptors", "give the domain at least one descriptor", descriptors(func(d *EnvoyDomain) *[]EnvoyDescriptor {
			return &d.Descriptors
		})},
	}
)

func descriptorMembers() []member[EnvoyDescriptor] {
	return []member[EnvoyDescriptor]{
		{"key", "name the key of an entry", codec[EnvoyDescriptor]{readKey, func(d *EnvoyDescriptor) string { return scalar(d.Key) }}},
		{"value", "", name(func(d *EnvoyDescriptor) *string { return &d.Value })},
		{"policy", "", name(func(d *EnvoyDescriptor) *string { return &d.Policy })},
		{"unlimited", "", yes(func(d *EnvoyDescriptor) *bool { return &d.Unlimited })},
		{"name", "", name(func(d *EnvoyDescriptor) *string { return &d.Name })},
		{"replaces", "", words(func(d *EnvoyDescriptor) *[]string { return &d.Replaces })},
		{"quota", "", yes(func(d *EnvoyDescriptor) *bool { return &d.Quota })},
		{"shared", "", yes(func(d *EnvoyDescriptor) *bool { return &d.Shared })},
		{"identifier", "", words(func(d *EnvoyDescriptor) *[]string { return &d.Identifier })},
		{"descriptors", "", descriptors(func(d *EnvoyDescriptor) *[]EnvoyDescriptor { return &d.Descriptors })},
	}
}

func readEnvoy(f *yamlfile.File, n *yamlfile.Node, file *contents) {
	file.Envoy = new(Envoy)
	if readMap(f, n, envoyMembers, "write domains: and a list of them", file.Envoy) {
		file.envoyAt = n
	}
}

func writeEnvoy(file *contents) string {
	if file.Envoy == nil {
		return ""
	}
	return "\n  " + strings.ReplaceAll(lines(envoyMembers, file.Envoy), "\n", "\n  ")
}

func writeDomains(e *Envoy) string {
	return cmp.Or(list(e.Domains, func(d *EnvoyDomain) string { return lines(domainMembers, d) }), "[]")
}

// descriptors reads and writes the descriptors below a domain or a descriptor.
func descriptors[T any](field func(*T) *[]EnvoyDescriptor) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) { *field(into) = readDescriptors(f, n) },
		func(from *T) string {
			return list(*field(from), func(d *EnvoyDescriptor) string { return lines(descriptorMembers(), d) })
		},
	}
}

func readDomains(f *yamlfile.File, n *yamlfile.Node, envoy *Envoy) {
	if !f.Expect(n, yamlfile.List, "start each domain with - domain:") {
		return
	}
	lines := make(map[string]int, len(n.Items))
	for _, item := range n.Items {
		var domain EnvoyDomain
		readMap(f, item, domainMembers, wholeDomain, &domain) // is kept even if it is wrong
		envoy.Domains = append(envoy.Domains, domain)
		name := item.Find("domain")
		if first, twice := lines[domain.Name]; twice && domain.Name != "" {
			f.Add(name, "%q is the domain on line %d too: put the descriptors of both into one", domain.Name, first)
		}
		lines[domain.Name] = name.Line
	}
}

func readDescriptors(f *yamlfile.File, n *yamlfile.Node) []EnvoyDescriptor {
	if !f.Expect(n, yamlfile.List, "start each descriptor with - key:") {
		return nil
	}
	if len(n.Items) == 0 {
		f.Add(n, "there are no descriptors: give at least one")
	}
	type step struct{ key, value string }
	lines := make(map[step]int, len(n.Items))
	list := make([]EnvoyDescriptor, len(n.Items))
	for i, item := range n.Items {
		d := &list[i]
		if !readMap(f, item, descriptorMembers(), "write {key: remote_address, policy: api} or the like", d) {
			continue
		}
		at := step{d.Key, d.Value}
		if first, twice := lines[at]; twice && d.Key != "" {
			f.Add(item, "the same key and value as on line %d: put both into one", first)
		}
		lines[at] = item.Line
		checkStep(f, item, d)
	}
	return list
}

// checkStep adds the mistakes in d itself.
func checkStep(f *yamlfile.File, n *yamlfile.Node, d *EnvoyDescriptor) {
	limits := d.Policy != "" || d.Unlimited
	for _, decisive := range []string{"policy", "unlimited", "descriptors"} {
		if f.Wrong(yamlfile.Join(n.Path, decisive)) {
			return // other mistakes may follow from it
		}
	}
	for _, c := range []struct {
		wrong        bool
		path, detail string
	}{
		{d.Policy != "" && d.Unlimited, "unlimited", "there is a policy, too: keep one of them"},
		{!limits && len(d.Descriptors) == 0 && !n.Partial, "", "nothing holds here: give it policy:, unlimited: true, or descriptors: below it"},
		{!limits && d.Name != "", "name", "there is no limit here that it could name: give a policy:, or remove it"},
		{!limits && d.Replaces != nil, "replaces", "there is no limit here that could replace others: give a policy:, or remove it"},
		{d.Policy == "" && d.Quota, "quota", "there is no quota here: give a policy:, or remove it"},
		{d.Policy == "" && d.Identifier != nil, "identifier", "nothing is counted here: give a policy:, or remove it"},
		{d.Shared && !strings.Contains(d.Value, "*"), "shared", "values are shared where value: has a *: give it one, or remove this"},
		{d.Name != "" && slices.Contains(d.Replaces, d.Name), "replaces", "it names its own limit: remove that one"},
	} {
		path := yamlfile.Join(n.Path, c.path)
		if c.wrong && !f.Wrong(path) {
			f.AddAt(n.Find(c.path).Position, path, "%s", c.detail)
		}
	}
}

// envoyNames are the names that descriptors of a domain may use.
type envoyNames struct {
	policies map[string]*policy.Policy // nil: not all of them could be read
	limits   map[string]bool
	together bool // of the domain
}

// checkEnvoy adds mistakes between the section for Envoy and the rest of the file: unknown policies, names and keys.
func checkEnvoy(f *yamlfile.File, file *contents) {
	if file.envoyAt == nil {
		return
	}
	names := envoyNames{policies: make(map[string]*policy.Policy, len(file.Policies))}
	for i := range file.Policies {
		names.policies[file.Policies[i].Name] = &file.Policies[i]
	}
	if list := f.Root.Member("policies"); list == nil || len(file.Policies) != len(list.Items) || names.policies[""] != nil {
		names.policies = nil
	}
	for i := range file.Envoy.Domains {
		domain := &file.Envoy.Domains[i]
		names.limits, names.together = make(map[string]bool), domain.Together
		domain.Each(func(_ []string, d *EnvoyDescriptor) { names.limits[d.Name] = d.Name != "" })
		at := file.envoyAt.Find("domains").Items[i].Member("descriptors")
		names.check(f, at, domain.Descriptors, nil)
	}
}

// check adds mistakes for unknown names in descriptors and those below; above are the keys that lead to them.
func (names *envoyNames) check(f *yamlfile.File, n *yamlfile.Node, list []EnvoyDescriptor, above []string) {
	for i := range list {
		d, at := &list[i], n.Items[i]
		keys := append(slices.Clip(above), d.Key)
		names.checkPolicy(f, at, d)
		if names.together && d.Quota {
			f.Add(at.Find("quota"), "a quota that lacks denies nothing alone, so it can't stand or fall with others: remove together:, or this")
		}
		for _, name := range d.Replaces {
			if !names.limits[name] {
				f.Add(at.Find("replaces"), "no limit of this domain is called %.64q: %s", name, oneOfThem(name, names.limits))
			}
		}
		for _, key := range d.Identifier {
			if !slices.Contains(keys, key) {
				f.Add(at.Find("identifier"), "no entry that leads here has the key %.64q: %s", key, yamlfile.DidYouMean(key, keys))
			}
		}
		if d.Descriptors != nil {
			names.check(f, at.Member("descriptors"), d.Descriptors, keys)
		}
	}
}

// checkPolicy adds mistakes about the policy of d, whose node is at.
func (names *envoyNames) checkPolicy(f *yamlfile.File, at *yamlfile.Node, d *EnvoyDescriptor) {
	if d.Policy == "" || names.policies == nil {
		return
	}
	p := names.policies[d.Policy]
	switch {
	case p == nil:
		f.Add(at.Find("policy"), "no policy of this file is called so: %s", oneOfThem(d.Policy, names.policies))
	case p.Normalize.Form != "" && p.Normalize.Form != policy.FormLowercase && len(d.Identifier) != 1:
		f.Add(at.Find("policy"), "it reads identifiers (normalize: %s): name the entry that has them by identifier: and its key",
			p.Normalize.Form)
	case names.together && p.Count == policy.CountAll:
		f.Add(at.Find("policy"), "its denied attempts use quota (count: all), and together: says that they use none: say count: admitted there")
	}
}

// maxSuggested is the maximum of names in a message.
const maxSuggested = 50

// oneOfThem returns a hint on the names that may have been meant.
func oneOfThem[T any](name string, names map[string]T) string {
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool { return name == "" })
	if len(known) == 0 {
		return "none has a name: give the one that is meant name: " + name
	}
	if nearest, likely := yamlfile.Nearest(name, known); likely || len(known) > maxSuggested {
		return "did you mean " + nearest + "?"
	}
	return yamlfile.DidYouMean(name, known)
}

func readKey(f *yamlfile.File, n *yamlfile.Node, d *EnvoyDescriptor) {
	if name(func(d *EnvoyDescriptor) *string { return &d.Key }).read(f, n, d); strings.Contains(d.Key, "*") {
		f.Add(n, "a * stands for any text in values only: write the key out")
	}
}

// headerName parses the name of a header (RFC 9110, section 5.6.2).
func headerName(text string) (string, error) {
	if strings.ContainsFunc(text, isNoToken) {
		return "", fmt.Errorf("%.64q is not the name of a header: use letters, digits and -", text)
	}
	return text, nil
}

func isNoToken(r rune) bool {
	alphanumeric := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// words reads one word, or a list of words that are all different, and writes a list.
func words[T any](field func(*T) *[]string) codec[T] {
	read := func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		items := []*yamlfile.Node{n}
		if n.Kind == yamlfile.List {
			items = n.Items
		}
		if len(items) == 0 {
			f.Add(n, "is empty: give it a value or remove it")
		}
		for _, item := range items {
			text, ok := readWord(f, item)
			if ok && slices.Contains(*field(into), text) {
				f.Add(item, "%.64q is given twice: keep one of them", text)
			}
			*field(into) = append(*field(into), text)
		}
	}
	return codec[T]{read, func(from *T) string { return scalars(*field(from)) }}
}
