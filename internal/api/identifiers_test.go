package api

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// asGiven returns every identifier unchanged.
func asGiven(_ string, id keys.Identifier) keys.Identifier { return id }

// codes counts numbers, their countries and their first digits.
var codes = []policy.Policy{
	{
		Name: "codes", Limits: []policy.Limit{perMinute(2)}, Normalize: policy.Normalize{Form: policy.FormE164, Region: "DE"},
		Derive: []policy.Derivation{
			{Policy: "codes-country", From: policy.PartCountry}, {Policy: "codes-prefix", From: policy.PartPrefix, Digits: 7},
		},
	},
	{Name: "codes-country", Limits: []policy.Limit{perMinute(1000)}, Normalize: policy.Normalize{Form: policy.FormLowercase}},
	{Name: "codes-prefix", Limits: []policy.Limit{perMinute(3)}},
	{
		Name: "visits", Limits: []policy.Limit{perMinute(2)}, Normalize: policy.Normalize{Form: policy.FormIPv6Net},
		Derive: []policy.Derivation{{Policy: "visits-net", From: policy.PartIPPrefix, IPv4Bits: 24}},
	},
	{Name: "visits-net", Limits: []policy.Limit{perMinute(2)}},
	{Name: "mail", Limits: []policy.Limit{perMinute(2)}, Normalize: policy.Normalize{Form: policy.FormEmail, Mailbox: true}},
}

func TestIdentifierStories(t *testing.T) {
	number := func(id string) string { return `{"policy":"codes","identifier":"` + id + `"}` }
	for name, steps := range map[string][]step{
		"identifiers": {
			{path: "/v1/take", body: number("+4915112345678")},
			{path: "/v1/take", body: number("0151 / 123 456 78")},
			{path: "/v1/take", body: number("+49 (0)151 12345678")},
			{path: "/v1/take", body: number("+49 151 12 999 999")},
			{path: "/v1/check", body: number("+49 151 12 888 888")},
			{path: "/v1/check", body: `{"policy":"codes-country","identifier":"DE"}`},
			{path: "/v1/reset", body: number("0151 12345678")},
			{path: "/v1/check", body: `{"demands":[` + number("+447700900123") + `]}`},
			{method: "GET", path: "/v1/policies"},
		},
		"identifiers-refused": {
			{path: "/v1/take", body: number("anna")},
			{path: "/v1/take", body: `{"demands":[` + oneTail + `,` + number("anna") + `]}`},
			{path: "/v1/take", body: `{"demands":[` + number("0151 12345678") + `,` + number("+4915112345678") + `]}`},
			{path: "/v1/take", body: `{"policy":"mail","identifier":"Anna <anna@example.com>"}`},
			{path: "/v1/take", body: `{"policy":"visits","identifier":"203.0.113.7:80"}`},
			{path: "/v1/reset", body: number("anna")},
			{path: "/v1/batch", body: `{"operations":[{"op":"take","policy":"codes","identifier":"anna"},` +
				`{"op":"take","policy":"visits","identifier":"::ffff:203.0.113.7"},` +
				`{"op":"take","policy":"mail","identifier":"A.nna+x@Gmail.com"}]}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, nil, append([]policy.Policy{tail}, codes...)...)
			f.story(name, steps)
			for _, secret := range []string{"4915112345678", "12 999", "anna"} {
				if strings.Contains(strings.ToLower(f.log.String()), secret) {
					t.Errorf("the log has %q", secret)
				}
			}
		})
	}
}

// TestLanesGoByWhoIsMeant holds that spellings of one identifier are in one lane.
func TestLanesGoByWhoIsMeant(t *testing.T) {
	f := newFront(t, nil, codes...)
	var ops []operation
	for _, id := range []string{"+4915112345678", "+4915112345679", "0151 12345678", "no number", "0151 12345679"} {
		asked := limiter.Call{Demands: []limiter.Demand{{Policy: "codes", Identifier: keys.Identifier(id)}}}
		ops = append(ops, operation{call: call{asked: decode.Call{Call: asked}}})
	}
	if got, want := lanesOf(ops, f.server.canonical), [][]int{{0, 2}, {1, 4}, {3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDerivedOfANetwork holds that neighbours of a caller that used up the units of their network are denied.
func TestDerivedOfANetwork(t *testing.T) {
	f := newFront(t, nil, codes...)
	for _, c := range []struct {
		id     string
		status int
	}{
		{"203.0.113.7", 200}, {"203.0.113.8", 200}, {"203.0.113.9", 429}, {"203.0.114.9", 200},
		{"2001:db8::1", 200}, {"2001:db8:0:1::1", 200}, {"2001:db8:0:2::1", 429},
	} {
		if got := f.do("POST", "/v1/take", `{"policy":"visits","identifier":"`+c.id+`"}`); got.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.id, got.StatusCode, c.status)
		}
		f.set(f.now().Add(time.Second))
	}
}
