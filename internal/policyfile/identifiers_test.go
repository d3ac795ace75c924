package policyfile_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// withIdentifiers is a file of a policy with these lines, and of those that may be derived.
func withIdentifiers(lines ...string) string {
	return written(append([]string{goodLimits}, lines...)...) + `
  - name: country
    limits: [{algorithm: fixed-window, limit: 5, window: 1h}]
  - name: net
    limits: [{algorithm: fixed-window, limit: 5, window: 1h}]
    normalize: ip
`
}

func TestIdentifiers(t *testing.T) {
	for _, c := range []struct {
		lines  []string
		want   policy.Normalize
		derive []policy.Derivation
	}{
		{[]string{"normalize: e164"}, policy.Normalize{Form: policy.FormE164}, nil},
		{[]string{"normalize: {e164: {region: NO}}"}, policy.Normalize{Form: policy.FormE164, Region: "NO"}, nil},
		{[]string{"normalize: {email: {mailbox: true}}"}, policy.Normalize{Form: policy.FormEmail, Mailbox: true}, nil},
		{[]string{"normalize: {email: {mailbox: True}}"}, policy.Normalize{Form: policy.FormEmail, Mailbox: true}, nil},
		{[]string{"normalize: {email: {mailbox: false}}"}, policy.Normalize{Form: policy.FormEmail}, nil},
		{[]string{"normalize: lowercase"}, policy.Normalize{Form: policy.FormLowercase}, nil},
		{
			[]string{"normalize: e164", "derive: [{policy: country, from: {prefix: 5}}]"},
			policy.Normalize{Form: policy.FormE164}, []policy.Derivation{{Policy: "country", From: policy.PartPrefix, Digits: 5}},
		},
		{
			[]string{"normalize: ipv6-64", "derive:", "  - policy: net", "    from: {ip-prefix: 24, ipv6-prefix: 56}"},
			policy.Normalize{Form: policy.FormIPv6Net},
			[]policy.Derivation{{Policy: "net", From: policy.PartIPPrefix, IPv4Bits: 24, IPv6Bits: 56}},
		},
		{
			[]string{"normalize: ip", "derive: [{policy: net, from: {ip-prefix: 24}}, {policy: country, from: {ip-prefix: 8}}]"},
			policy.Normalize{Form: policy.FormIP},
			[]policy.Derivation{
				{Policy: "net", From: policy.PartIPPrefix, IPv4Bits: 24}, {Policy: "country", From: policy.PartIPPrefix, IPv4Bits: 8},
			},
		},
	} {
		policies, err := policyfile.Parse("p.yaml", []byte(withIdentifiers(c.lines...)))
		if err != nil {
			t.Errorf("%q: %v", c.lines, err)
			continue
		}
		if p := policies[0]; p.Normalize != c.want || !reflect.DeepEqual(p.Derive, c.derive) {
			t.Errorf("%q: read as %+v, %+v", c.lines, p.Normalize, p.Derive)
		}
		text := policyfile.Format(policies)
		again, err := policyfile.Parse("formatted.yaml", text)
		if err != nil || !reflect.DeepEqual(again[0], policies[0].WithDefaults()) {
			t.Errorf("%q: formatted as\n%s\nand read back as %+v, %v", c.lines, text, again, err)
		}
	}
}

// TestWrongIdentifiers tells each mistake once, where it is.
func TestWrongIdentifiers(t *testing.T) {
	for name, c := range map[string]struct{ normalize, derive, want string }{
		"no form":            {"phone", "", `normalize: "phone" is not known: use one of e164, email`},
		"an unknown member":  {"{e165: {region: DE}}", "", `normalize.e165: unknown key: did you mean e164?`},
		"two forms":          {"{e164: {region: DE}, email: {mailbox: true}}", "", "normalize: 2 forms: write one"},
		"nothing of a form":  {"{e164: {}}", "", "normalize.e164.region: missing: give the country"},
		"a country of none":  {"{e164: {region: XX}}", "", `normalize: no phone number has the region "XX"`},
		"a small country":    {"{e164: {region: de}}", "", "normalize: a region is two capital letters"},
		"text for a truth":   {"{email: {mailbox: drop}}", "", "normalize.email.mailbox: text where true or false belongs"},
		"no list":            {"e164", "country", "derive: text where a list belongs"},
		"an empty list":      {"e164", "[]", "derive: there are no derivations"},
		"no part":            {"e164", "[{policy: country}]", "derive[0].from: missing: name the part"},
		"a part of nobody":   {"e164", "[{policy: country, from: continent}]", `"continent" is not known`},
		"no digits":          {"e164", "[{policy: country, from: {prefix: 0}}]", "prefix 0 is out of range: use 1 to 14"},
		"no bits":            {"ip", "[{policy: net, from: {ip-prefix: 8, ipv6-prefix: 0}}]", "ipv6-prefix: 0 is out of range: use 1 to 128"},
		"too many digits":    {"e164", "[{policy: country, from: {prefix: 15}}]", "prefix 15 is out of range: use 1 to 14"},
		"a prefix of no way": {"ip", "[{policy: net, from: prefix}]", `"prefix" is a part of identifiers in the form e164`},
		"two parts":          {"ip", "[{policy: net, from: {prefix: 3, ip-prefix: 24}}]", "say one part"},
		"a carrier of mail":  {"email", "[{policy: country, from: carrier}]", `"carrier" is a part of identifiers in the form e164`},
		"an unknown policy":  {"e164", "[{policy: planet, from: country}]", `there is no policy "planet"`},
		"what takes none":    {"e164", "[{policy: net, from: country}]", `"net" normalizes to ip, which "country" is not`},
	} {
		lines := []string{"normalize: " + c.normalize}
		if c.derive != "" {
			lines = append(lines, "derive: "+c.derive)
		}
		_, err := policyfile.Parse("p.yaml", []byte(withIdentifiers(lines...)))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "p.yaml:") != 1 {
			t.Errorf("%s: %v, want %q and nothing else", name, err, c.want)
		}
	}
}
