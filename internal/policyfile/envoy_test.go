package policyfile_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

const goodPolicy = "policies:\n  - name: api\n    " + goodLimits + "\n"

// descriptors returns a file whose one domain, from line 6 on, has these descriptors.
func descriptors(lines ...string) string {
	const indent = "\n        "
	return goodPolicy + "envoy:\n  domains:\n    - domain: edge\n      descriptors:" + indent + strings.Join(lines, indent) + "\n"
}

func TestEnvoyIsRead(t *testing.T) {
	file, err := policyfile.LoadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &policyfile.Envoy{
		Headers: policyfile.EnvoyHeaders{
			Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset", RetryAfter: "Retry-After",
		},
		Domains: []policyfile.EnvoyDomain{
			{Name: "edge", Descriptors: []policyfile.EnvoyDescriptor{
				{Key: "remote_address", Policy: "per-address", Name: "address", Identifier: []string{"remote_address"}},
				{Key: "path", Value: "/files/*/download", Policy: "per-path", Shared: true, Quota: true},
				{Key: "plan", Value: "gold", Unlimited: true, Replaces: []string{"address", "login limit"}},
				{Key: "generic_key", Value: "404", Descriptors: []policyfile.EnvoyDescriptor{
					{Key: "remote_address", Policy: "per-address", Name: "login limit", Identifier: []string{"generic_key", "remote_address"}},
				}},
			}},
			{Name: "mesh", Together: true, Descriptors: []policyfile.EnvoyDescriptor{{Key: "service", Policy: "per-path"}}},
		},
	}
	if !reflect.DeepEqual(file.Envoy, want) {
		t.Errorf("read as\n%+v\nwant\n%+v", file.Envoy, want)
	}
	text := policyfile.FormatFile(file)
	golden(t, "testdata/envoy.golden", string(text))
	again, err := policyfile.ParseFile("formatted.yaml", text)
	if err != nil || !reflect.DeepEqual(again.Envoy, want) {
		t.Errorf("read back as\n%+v, %v", again.Envoy, err)
	}
}

func TestEnvoyMistakes(t *testing.T) {
	const ok, first = "- {key: a, policy: api}", "8: envoy.domains[0].descriptors[0]"
	inEnvoy := func(text string) string { return goodPolicy + "envoy: {" + text + "}\n" }
	for _, test := range []struct{ name, text, want string }{
		{"no domains", inEnvoy(""), "4: envoy.domains: missing: give the domains that Envoy asks about"},
		{"a word", goodPolicy + "envoy: edge\n", "4: envoy: text where a map belongs: write domains:"},
		{"domains that are a map", inEnvoy("domains: {edge: x}"), "4: envoy.domains: a map where a list belongs: start each domain"},
		{"a domain without a name", inEnvoy("domains: [{descriptors: [{key: a, policy: api}]}]"), "4: envoy.domains[0].domain: missing"},
		{"a domain that is a word", inEnvoy("domains: [edge]"), "4: envoy.domains[0]: text where a map belongs: write domain:"},
		{"a domain without descriptors", inEnvoy("domains: [{domain: edge}]"), "4: envoy.domains[0].descriptors: missing"},
		{"a domain twice", goodPolicy + "envoy:\n  domains:\n    - {domain: e, descriptors: [{key: a, policy: api}]}\n" +
			"    - {domain: e, descriptors: [{key: a, policy: api}]}\n", `7: envoy.domains[1].domain: "e" is the domain on line 6 too`},
		{"a header with a space", inEnvoy("domains: [], response_headers: {limit: a b}"),
			`4: envoy.response_headers.limit: "a b" is not the name of a header`},
		{"an unknown header", inEnvoy("domains: [], response_headers: {limits: a}"),
			"4: envoy.response_headers.limits: unknown key: did you mean limit?"},
		{"a quota beside others", inEnvoy("domains: [{domain: e, together: true, descriptors: [{key: a, policy: api, quota: true}]}]"),
			"4: envoy.domains[0].descriptors[0].quota: a quota that lacks denies nothing alone"},
		{"denials that count, together", "policies:\n  - name: p\n    count: all\n    limits: " +
			"[{algorithm: fixed-window, limit: 1, window: 1h}]\n" +
			"envoy: {domains: [{domain: e, together: true, descriptors: [{key: a, policy: p}]}]}\n",
			"5: envoy.domains[0].descriptors[0].policy: its denied attempts use quota (count: all), and together:"},
		{"no key", descriptors("- {policy: api}"), first + ".key: missing"},
		{"a star in a key", descriptors("- {key: 'a*', policy: api}"), first + ".key: a * stands for any text in values only"},
		{"a value that is a number", descriptors("- {key: a, value: 404, policy: api}"), first + ".value: a number where text"},
		{"a step twice", descriptors(ok, ok), "9: envoy.domains[0].descriptors[1]: the same key and value as on line 8"},
		{"an unknown policy", descriptors("- {key: a, policy: apy}"),
			first + ".policy: no policy of this file is called so: did you mean api?"},
		{"nothing that holds", descriptors("- {key: a}"), first + ": nothing holds here: give it policy:"},
		{"no descriptors", descriptors("- {key: a, descriptors: []}"), first + ".descriptors: there are no descriptors"},
		{"unlimited, and a policy", descriptors("- {key: a, policy: api, unlimited: true}"),
			first + ".unlimited: there is a policy, too"},
		{"unlimited in quotes", descriptors("- {key: a, unlimited: 'true'}"), first + ".unlimited: text where true or false"},
		{"a name for nothing", descriptors("- {key: a, name: n, descriptors: [{key: b, policy: api}]}"),
			first + ".name: there is no limit here"},
		{"an unknown limit", descriptors("- {key: a, policy: api, name: first}", "- {key: b, policy: api, replaces: [frist]}"),
			`9: envoy.domains[0].descriptors[1].replaces: no limit of this domain is called "frist": did you mean first?`},
		{"its own limit", descriptors("- {key: a, policy: api, name: n, replaces: n}"),
			first + ".replaces: it names its own limit"},
		{"a limit twice", descriptors("- {key: a, policy: api, name: n}", "- {key: b, policy: api, replaces: [n, n]}"),
			`9: envoy.domains[0].descriptors[1].replaces[1]: "n" is given twice`},
		{"shared without a star", descriptors("- {key: a, value: b, policy: api, shared: true}"),
			first + ".shared: values are shared where value: has a *"},
		{"a quota of nothing", descriptors("- {key: a, unlimited: true, quota: true}"), first + ".quota: there is no quota"},
		{"an identifier of nothing", descriptors("- {key: a, unlimited: true, identifier: a}"),
			first + ".identifier: nothing is counted here"},
		{"an identifier from below", descriptors("- {key: a, policy: api, identifier: b, descriptors: [{key: b, policy: api}]}"),
			first + `.identifier: no entry that leads here has the key "b": known ones: a`},
		{"a mistake far below", descriptors("- key: a", "  descriptors:", "    - key: b", "      descriptors: [{key: c, policy: login}]"),
			"11: envoy.domains[0].descriptors[0].descriptors[0].descriptors[0].policy: no policy of this file is called so"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := lines(t, test.text); len(got) != 1 || !strings.HasPrefix(got[0], "p.yaml:"+test.want) {
				t.Errorf("got %q, want one mistake p.yaml:%s…", got, test.want)
			}
		})
	}
}

// TestNormalizedPoliciesNeedAnEntry holds that no policy is asked to read as an address
// what is a domain with keys and values.
func TestNormalizedPoliciesNeedAnEntry(t *testing.T) {
	normalized := func(form, descriptor string) string {
		return strings.Replace(descriptors(descriptor), "name: api", "name: api\n    normalize: "+form, 1)
	}
	for _, text := range []string{
		normalized("ip", "- {key: a, policy: api, identifier: a}"), normalized("lowercase", "- {key: a, policy: api}"),
	} {
		if _, err := policyfile.Parse("p.yaml", []byte(text)); err != nil {
			t.Error(err)
		}
	}
	for _, descriptor := range []string{
		"- {key: a, policy: api}", "- {key: a, descriptors: [{key: b, policy: api, identifier: [a, b]}]}",
	} {
		got := lines(t, normalized("ip", descriptor))
		if len(got) != 1 || !strings.Contains(got[0], ".policy: it reads identifiers (normalize: ip): name the entry") {
			t.Errorf("%s: got %q", descriptor, got)
		}
	}
}

// TestMistakesOfPoliciesHideNoneOfEnvoy looks for both kinds at once, without what only
// follows from the first: a policy whose name could not be read may be the one meant.
func TestMistakesOfPoliciesHideNoneOfEnvoy(t *testing.T) {
	text := strings.Replace(descriptors("- {key: a, policy: apis}", "- {key: b, policy: apis, quota: 1}"), "name: api", "nome: apis", 1)
	if got := lines(t, text); len(got) != 2 || !slices.ContainsFunc(got, func(m string) bool { return strings.Contains(m, "quota") }) {
		t.Errorf("got %q, want that of the policy and that of the quota", got)
	}
}

func TestEachVisitsAllDescriptors(t *testing.T) {
	file, err := policyfile.LoadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var visited []string
	file.Envoy.Domains[0].Each(func(path []string, d *policyfile.EnvoyDescriptor) {
		visited = append(visited, strings.Join(path, "/")+"="+d.Value)
	})
	want := []string{"remote_address=", "path=/files/*/download", "plan=gold", "generic_key=404", "generic_key/remote_address="}
	if !slices.Equal(visited, want) {
		t.Errorf("visited %q, want %q", visited, want)
	}
}
