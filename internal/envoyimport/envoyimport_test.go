package envoyimport_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/envoyimport"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

var update = flag.Bool("update", false, "write the golden files anew")

func read(t testing.TB, name string) envoyimport.Source {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return envoyimport.Source{Name: name, Data: data}
}

// TestConverted prints converted files, and the warnings about parts that are left out.
func TestConverted(t *testing.T) {
	for _, name := range []string{"shop", "losses", "odd", "configmap"} {
		file, warnings, err := envoyimport.Convert([]envoyimport.Source{read(t, name+".yaml")}, envoyimport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text := printed(file)
		for _, w := range warnings {
			text = append(text, "# "+w.Error()+"\n"...)
		}
		golden := "testdata/" + name + ".golden"
		if *update {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(text) {
			t.Errorf("%s: got\n%s\nwant\n%s%v", name, text, want, err)
		}
	}
}

// printed returns the converted text, without the policies' defaults, which another package writes.
func printed(file policyfile.File) (text []byte) {
	for _, p := range file.Policies {
		l := p.Limits[0]
		text = fmt.Appendf(text, "%s (%s): %s, %d in %v, count %q, mode %q\n",
			p.Name, p.Description, l.Algorithm, l.Limit, l.Window, p.Count, p.Mode)
	}
	_, mapping, _ := bytes.Cut(policyfile.FormatFile(file), []byte("\nenvoy:\n"))
	return append(text, mapping...)
}

// TestSeveralFiles holds that each domain becomes one of the mapping, that policies have
// names of their own, and that a domain may not come twice.
func TestSeveralFiles(t *testing.T) {
	one := envoyimport.Source{Name: "one.yaml", Data: []byte(
		"domain: a.b\ndescriptors: [{key: c, rate_limit: {unit: second, requests_per_unit: 1}}]")}
	other := envoyimport.Source{Name: "other.yaml", Data: []byte(
		"domain: a\ndescriptors: [{key: b, value: c, rate_limit: {unit: second, requests_per_unit: 2}}]")}
	file, _, err := envoyimport.Convert([]envoyimport.Source{one, other}, envoyimport.Options{Count: policy.CountAdmitted})
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Policies) != 2 || file.Policies[0].Name != "a.b.c" || file.Policies[1].Name != "a.b.c-2" ||
		file.Policies[0].Count != policy.CountAdmitted || file.Envoy.Domains[1].Name != "a" {
		t.Errorf("converted to %+v", file)
	}
	_, _, err = envoyimport.Convert([]envoyimport.Source{one, one}, envoyimport.Options{})
	if want := `one.yaml:1: domain: "a.b" is the domain of one.yaml:1 too`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMistakes(t *testing.T) {
	in := func(descriptor string) string { return "domain: d\ndescriptors:\n  - " + descriptor + "\n" }
	limit := func(text string) string { return in("{key: k, rate_limit: {" + text + "}}") }
	const free = "rate_limit: {unlimited: true}}"
	const first, rate = "3: descriptors[0]", "3: descriptors[0].rate_limit"
	for name, test := range map[string]struct{ text, want string }{
		"nothing":         {"# soon\n", "1: there is nothing in this file"},
		"a list":          {"- domain: d\n", "1: a list where a map belongs"},
		"no domain":       {"descriptors: [{key: k, rate_limit: {unlimited: true}}]\n", "1: domain: missing or empty"},
		"an empty domain": {"domain: ''\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]\n", "1: domain: missing or empty"},
		"a ConfigMap of mistakes": {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a.yaml: |\n    domain: d\n    descriptors:\n    - {value: v}\n",
			"7: descriptors[0]: it has no key"},
		"a Deployment":       {"apiVersion: apps/v1\nkind: Deployment\n", "1: there is no ConfigMap with data in it"},
		"a float":            {limit("unit: minute, requests_per_unit: 1e3"), rate + ".requests_per_unit: it must be a whole number"},
		"requests in quotes": {limit("unit: minute, requests_per_unit: '5'"), rate + ".requests_per_unit: it must be a whole number"},
		"no octal number":    {limit("unit: minute, requests_per_unit: 08"), rate + ".requests_per_unit: it must be a whole number"},
		"a merge of words":   {"domain: d\n<<: [a]\ndescriptors: []\n", "2: <<: text where a map belongs: only maps can be merged"},
		"a billion": {"domain: d\nmetadata:\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" +
			"  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n" +
			"descriptors: [{key: k, rate_limit: {unlimited: true}}]\n", "4: aliases stand for more than 100000 values"},
		"no key":             {in("{value: v, rate_limit: {unlimited: true}}"), first + ": it has no key"},
		"a star in a key":    {in("{key: k*, rate_limit: {unlimited: true}}"), first + ".key: a * in a key can't be kept"},
		"a word":             {in("word"), first + ": text where a map belongs"},
		"an unknown member":  {limit("unit: minute, requests_per_unit: 1, unit_multiplier: 5"), rate + ".unit_multiplier: unknown key"},
		"a year":             {limit("unit: YEAR, requests_per_unit: 1"), rate + ".unit: a year can't be kept"},
		"an unknown unit":    {limit("unit: fortnight, requests_per_unit: 1"), rate + `.unit: "fortnight" is not a unit: there are second`},
		"no unit":            {limit("requests_per_unit: 1"), rate + ": it has no unit"},
		"too many requests":  {limit("unit: minute, requests_per_unit: 4294967296"), rate + ".requests_per_unit: it must be a whole number"},
		"negative requests":  {limit("unit: minute, requests_per_unit: -1"), rate + ".requests_per_unit: it must be a whole number"},
		"unlimited minutes":  {limit("unlimited: true, unit: minute"), rate + ".unit: an unlimited descriptor has no unit"},
		"unlimited as text":  {limit("unlimited: 'true', unit: minute, requests_per_unit: 1"), rate + ".unlimited: text where true or"},
		"itself replaced":    {limit("unlimited: true, name: n, replaces: [{name: n}]"), rate + ".replaces[0]: a limit can't replace itself"},
		"nobody replaced":    {limit("unlimited: true, replaces: [{name: ''}]"), rate + ".replaces[0]: it names no limit"},
		"replaced by words":  {limit("unlimited: true, replaces: [n]"), rate + ".replaces[0]: text where a map belongs"},
		"shared by nothing":  {in("{key: k, value: v, share_threshold: true, " + free), first + ".share_threshold: it needs a *"},
		"shadow as a number": {in("{key: k, shadow_mode: 1, " + free), first + ".shadow_mode: a number where"},
		"a step twice": {in("{key: k, rate_limit: {unlimited: true}}\n  - {key: k, value: '', rate_limit: {unlimited: true}}"),
			"4: descriptors[1]: the same key and value as on line 3"},
	} {
		_, _, err := envoyimport.Convert([]envoyimport.Source{{Name: "f.yaml", Data: []byte(test.text)}}, envoyimport.Options{})
		var mistakes yamlfile.Errors
		if !errors.As(err, &mistakes) || len(mistakes) != 1 || !strings.HasPrefix(err.Error(), "f.yaml:"+test.want) {
			t.Errorf("%s: got %v, want one mistake f.yaml:%s…", name, err, test.want)
		}
	}
	for _, text := range []string{"domain: d\n", in("{key: k, rate_limit: {unlimited: true}}")} {
		_, _, err := envoyimport.Convert([]envoyimport.Source{{Name: "f.yaml", Data: []byte(text)}}, envoyimport.Options{})
		if err == nil || err.Error() != "f.yaml: there is no limit in it, and so no policy to make" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestTooDeep checks that policies that could not be read back are not printed.
func TestTooDeep(t *testing.T) {
	text := "{key: k, rate_limit: {unit: minute, requests_per_unit: 1}}"
	for range 14 {
		text = "{key: k, descriptors: [" + text + "]}"
	}
	source := envoyimport.Source{Name: "f.yaml", Data: []byte("domain: d\ndescriptors: [" + text + "]")}
	_, _, err := envoyimport.Convert([]envoyimport.Source{source}, envoyimport.Options{})
	if err == nil || !strings.Contains(err.Error(), "more than 32 maps and lists") {
		t.Errorf("got %v", err)
	}
}

// FuzzConvert holds that whatever is in a file, what becomes of it is read back as it
// is, or what is wrong is told.
func FuzzConvert(f *testing.F) {
	f.Add(read(f, "shop.yaml").Data)
	f.Add(read(f, "losses.yaml").Data)
	f.Add(read(f, "odd.yaml").Data)
	f.Add(read(f, "configmap.yaml").Data)
	f.Add([]byte("domain: é\ndescriptors: [{key: 'a: b', value: \"\\u0001\", rate_limit: {unit: day, requests_per_unit: 1, name: '#'}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, warnings, err := envoyimport.Convert([]envoyimport.Source{{Name: "f.yaml", Data: data}}, envoyimport.Options{})
		if err != nil {
			if len(file.Policies) > 0 || warnings != nil {
				t.Fatalf("%d policies beside %v", len(file.Policies), err)
			}
			return
		}
		again, err := policyfile.ParseFile("again.yaml", policyfile.FormatFile(file))
		if err != nil || !reflect.DeepEqual(again.Envoy, file.Envoy) {
			t.Fatalf("read back as %+v, %v\nwant %+v", again.Envoy, err, file.Envoy)
		}
	})
}
