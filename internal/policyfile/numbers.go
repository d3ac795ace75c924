package policyfile

import (
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// choiceMembers are the two ways to name the values that pass.
var choiceMembers = []member[policy.Choice]{
	{"allow", "", wordList(func(c *policy.Choice) *[]string { return &c.Allow })},
	{"deny", "", wordList(func(c *policy.Choice) *[]string { return &c.Deny })},
}

// choice reads and writes the values that pass. example is a list of some.
func choice(field func(*policy.Policy) *policy.Choice, example string) codec[policy.Policy] {
	return codec[policy.Policy]{
		func(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
			cure := fmt.Sprintf("write {allow: %s} or {deny: %s}", example, example)
			if readMap(f, n, choiceMembers, cure, field(p)) && field(p).IsZero() && !anyWrong(f, n) {
				f.Add(n, "nothing is named: %s", cure)
			}
		},
		func(p *policy.Policy) string { return flow(choiceMembers, field(p)) },
	}
}

// wordList reads and writes a list of words.
func wordList[T any](field func(*T) *[]string) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) {
			if !f.Expect(n, yamlfile.List, "write it in brackets, and commas between") {
				return
			}
			if len(n.Items) == 0 {
				f.Add(n, "the list is empty: name at least one, or remove it")
			}
			for _, item := range n.Items {
				text, _ := readWord(f, item) // is kept even if it is wrong, for the indexes in problems
				*field(into) = append(*field(into), text)
			}
		},
		func(from *T) string { return scalars(*field(from)) },
	}
}

// addUnknownCountries adds a mistake for each unknown country in by of policies that are derived from countries.
func addUnknownCountries(f *yamlfile.File, items []*yamlfile.Node, policies []policy.Policy) {
	derived := make(map[string]bool)
	for _, p := range policies {
		for _, d := range p.Derive {
			derived[d.Policy] = derived[d.Policy] || d.From == policy.PartCountry
		}
	}
	for i, p := range policies {
		for j := range p.Limits {
			by := items[i].Find(fmt.Sprintf("limits[%d].by", j))
			if !derived[p.Name] || len(p.Limits[j].By) == 0 || anyWrong(f, by) {
				continue
			}
			for _, m := range by.Members {
				if err := identifier.CheckCountry(strings.ToUpper(m.Key)); err != nil && m.Key != defaultValue {
					f.Add(m.Value, "%v", err)
				}
			}
		}
	}
}
