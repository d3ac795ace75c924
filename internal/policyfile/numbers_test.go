package policyfile_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// withNumbers is a file of a policy with these lines that derives a country, whose one limit has
// these members.
func withNumbers(country string, lines ...string) string {
	lines = append([]string{goodLimits, "normalize: e164", "derive: [{policy: country, from: country}]"}, lines...)
	return written(lines...) + `
  - name: country
    limits: [{algorithm: token-bucket, window: 1h, ` + country + `}]
`
}

// TestNumbers reads which numbers pass, and how many units which country has.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		country string
		lines   []string
		want    policy.Policy // its countries and types, and its limit as that of the country
	}{
		{"limit: 5", []string{"countries: {allow: [DE, NO]}"}, policy.Policy{Countries: policy.Choice{Allow: []string{"DE", "NO"}}}},
		{"limit: 5", []string{`countries: {deny: ["+800", AX]}`, "number_types: {allow: [mobile]}"}, policy.Policy{
			Countries: policy.Choice{Deny: []string{"+800", "AX"}}, NumberTypes: policy.Choice{Allow: []string{"mobile"}},
		}},
		{"by: {DE: 1000, NO: 300, +800: 0, default: 50}", nil, policy.Policy{Limits: []policy.Limit{{
			Limit: 50, By: map[string]int64{"DE": 1000, "NO": 300, "+800": 0},
		}}}},
		{"by: {DE: 1000, default: 1}, burst: 7", nil, policy.Policy{Limits: []policy.Limit{{Limit: 1, By: map[string]int64{"DE": 1000}}}}},
	} {
		policies, err := policyfile.Parse("p.yaml", []byte(withNumbers(c.country, c.lines...)))
		if err != nil {
			t.Errorf("%s %q: %v", c.country, c.lines, err)
			continue
		}
		p, limit := policies[0], policies[1].Limits[0]
		if !reflect.DeepEqual(p.Countries, c.want.Countries) || !reflect.DeepEqual(p.NumberTypes, c.want.NumberTypes) {
			t.Errorf("%q: read as %+v, %+v", c.lines, p.Countries, p.NumberTypes)
		}
		if c.want.Limits != nil && (limit.Limit != c.want.Limits[0].Limit || !reflect.DeepEqual(limit.By, c.want.Limits[0].By)) {
			t.Errorf("%s: read as %+v", c.country, limit)
		}
		text := policyfile.Format(policies)
		again, err := policyfile.Parse("formatted.yaml", text)
		if err != nil || !reflect.DeepEqual(again[0], p.WithDefaults()) || !reflect.DeepEqual(again[1], policies[1].WithDefaults()) {
			t.Errorf("%q: formatted as\n%s\nand read back as %+v, %v", c.lines, text, again, err)
		}
	}
}

// TestWrongNumbers tells each mistake once, where it is.
func TestWrongNumbers(t *testing.T) {
	many := "default: 1"
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'L'; b++ {
			many += ", " + string(a) + string(b) + ": 1"
		}
	}
	const fine = "limit: 5"
	for name, c := range map[string]struct{ country, line, want string }{
		"no map":              {fine, "countries: [DE]", "6: policies[0].countries: a list where a map belongs: write {allow: [DE, AT]}"},
		"nothing":             {fine, "countries: {}", "6: policies[0].countries: nothing is named: write {allow"},
		"no country":          {fine, "countries: {allow: []}", "countries.allow: the list is empty: name at least one, or remove it"},
		"both":                {fine, "countries: {allow: [DE], deny: [FR]}", "countries: allow and deny: keep allow"},
		"a small country":     {fine, "countries: {allow: [DE, at]}", `countries.allow[1]: "at" is not a country: use two capital letters`},
		"a country of nobody": {fine, "countries: {deny: [DE, UK]}", `countries.deny[1]: no phone number has the country "UK": use two`},
		"a shared code":       {fine, `countries: {deny: ["+1"]}`, `no phone number has the country "+1"`},
		"a code for a number": {fine, "countries: {deny: [+800]}", "countries.deny[0]: a number where text belongs: put +800 in quotes"},
		"twice":               {fine, "countries: {deny: [DE, DE]}", `countries.deny[1]: "DE" is listed twice`},
		"a member":            {fine, "countries: {alow: [DE]}", "countries.alow: unknown key: did you mean allow?"},
		"a type of nobody":    {fine, "number_types: {deny: [premium]}", `"premium" is not a type of number: use one of fixed_line, mobile`},
		"no number":           {"name: x", "", "limits[0].limit: missing: give the number of units that a window may hold"},
		"two numbers":         {"limit: 5, by: {DE: 5, default: 5}", "", "limits[0].limit: by says it, for all others under default"},
		"no default":          {"by: {DE: 5}", "", "limits[0].by: no default: add default: and how many units all others have"},
		"only default":        {"by: {default: 7}", "", "limits[0].by: only default: name others too, or write limit: 7"},
		"no map of numbers":   {"by: [DE]", "", "limits[0].by: a list where a map belongs: write {DE: 1000, AT: 300, default: 50}"},
		"a word":              {"by: {DE: many, default: 5}", "", `limits[0].by.DE: "many" is not a whole number`},
		"a negative number":   {"by: {DE: -1, default: 5}", "", "limits[0].by.DE: -1 is out of range: use 0"},
		"a negative default":  {"by: {DE: 1, default: -5}", "", "limits[0].limit: -5 is out of range"},
		"a burst of nothing":  {"by: {DE: 0, default: 5}, burst: 5", "", "limits[0].by.DE: a limit of 0 denies always: remove the burst"},
		"too small a burst":   {"by: {DE: 7200000, default: 5}, burst: 1", "", "limits[0].by.DE: a burst of 1 loses tokens of 7200000"},
		"too many":            {"by: {" + many + "}", "", "limits[0].by: 312 values: use at most 300"},
		"no such country":     {"by: {DE: 5, UK: 5, default: 1}", "", `policies[1].limits[0].by.UK: no phone number has the country "UK"`},
		"a part of another": {"by: {de: 5, default: 1}", "",
			`derive[0].policy: "country" has a limit by "de", but no country has that form: use two capital letters`},
	} {
		_, err := policyfile.Parse("p.yaml", []byte(withNumbers(c.country, c.line)))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "p.yaml:") != 1 {
			t.Errorf("%s: %v, want %q and nothing else", name, err, c.want)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"no phone numbers": {written(goodLimits, "countries: {deny: [DE]}"), "countries: only phone numbers have it: add normalize: e164"},
		"no phone's types": {written(goodLimits, "normalize: ip", "number_types: {deny: [voip]}"), "number_types: only phone numbers have it"},
		"another spelling": {limit("algorithm: fixed-window, window: 1h, by: {A: 5, default: 1}") + "\n    normalize: lowercase",
			`by.A: it is counted as "a": write that`},
		"a log of too many": {limit("algorithm: sliding-log, window: 1h, by: {a: 50000, default: 1}"), "limits[0].by.a: 50000"},
	} {
		_, err := policyfile.Parse("p.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "p.yaml:") != 1 {
			t.Errorf("%s: %v, want %q and nothing else", name, err, c.want)
		}
	}
}

// TestLimitsByCarrier reads limits by a derived carrier, and refuses what no carrier is.
func TestLimitsByCarrier(t *testing.T) {
	const text = `policies:
  - name: sms-send
    normalize: e164
    derive: [{policy: sms-carrier, from: carrier}]
    limits: [{algorithm: sliding-log, limit: 5, window: 1h}]
  - name: sms-carrier
    limits: [{algorithm: fixed-window, by: {NAME: 9, default: 1000}, window: 1h}]
`
	for name, want := range map[string]string{
		"DE/Vodafone": "", "unknown": "",
		"Vodafone": "but no carrier has that form: use a country and a carrier such as DE/Vodafone, or unknown",
		"de/O2":    "but no carrier has that form", "DE": "but no carrier has that form", "DE/": "but no carrier has that form",
	} {
		policies, err := policyfile.Parse("p.yaml", []byte(strings.Replace(text, "NAME", strconv.Quote(name), 1)))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", name, err, want)
		case want == "" && (err != nil || policies[0].Derive[0].From != policy.PartCarrier):
			t.Errorf("%s: %v", name, err)
		case want == "":
			if again, err := policyfile.Parse("p.yaml", policyfile.Format(policies)); err != nil || again[0].Derive[0].From != policy.PartCarrier {
				t.Errorf("%s: formatted and read again: %v", name, err)
			}
		}
	}
}
