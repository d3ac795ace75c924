package api

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// pumped are codes to numbers of two countries, each with its own limit, except numbers that cost the caller a fee.
func pumped() []policy.Policy {
	country := perMinute(1)
	country.By = map[string]int64{"DE": 3, "AT": 2}
	return []policy.Policy{
		{
			Name: "pumped", Limits: []policy.Limit{perMinute(2)}, Normalize: policy.Normalize{Form: policy.FormE164},
			Countries:   policy.Choice{Allow: []string{"DE", "AT"}},
			NumberTypes: policy.Choice{Deny: []string{"premium_rate", "shared_cost"}},
			Derive:      []policy.Derivation{{Policy: "pumped-country", From: policy.PartCountry}},
		},
		{Name: "pumped-country", Limits: []policy.Limit{country}},
		{
			Name: "watched", Limits: []policy.Limit{perMinute(2)}, Normalize: policy.Normalize{Form: policy.FormE164},
			Countries: policy.Choice{Deny: []string{"FR"}}, Mode: policy.ModeShadow,
		},
	}
}

// TestNumberStories compares the answers about numbers that a rule refuses with those in testdata.
func TestNumberStories(t *testing.T) {
	number := func(policy, id string) string { return `{"policy":"` + policy + `","identifier":"` + id + `"}` }
	const german, french, shared = "+4915112345678", "+33 6 12 34 56 78", "+491802123456"
	f := newFront(t, &Options{ForwardAuth: gateways}, append(pumped(), tail)...)
	f.story("numbers", []step{
		{path: "/v1/take", body: number("pumped", french)},
		{path: "/v1/take", body: number("pumped", shared)},
		{path: "/v1/check", body: number("pumped", "+12025550123")},
		{path: "/v1/take", body: `{"demands":[` + oneTail + `,` + number("pumped", french) + `]}`},
		{path: "/v1/take", body: number("watched", french)},
		{path: "/v1/record", body: number("pumped", french)},
		{path: "/v1/batch", body: `{"operations":[{"op":"take","policy":"pumped","identifier":"` + shared + `"},` +
			`{"op":"take","policy":"pumped","identifier":"` + german + `"}]}`},
		{
			method: "GET", path: forwardAuth + "pumped&identify=header:X-Tenant",
			headers: []string{"X-Forwarded-For", "203.0.113.7", "X-Tenant", french},
		},
		{path: "/v1/explain", body: number("pumped", french)},
		{path: "/v1/explain", body: number("watched", french)},
		{path: "/v1/explain", body: number("pumped-country", "DE")},
		{method: "GET", path: "/v1/policies"},
	})
}
