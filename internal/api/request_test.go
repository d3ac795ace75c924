package api

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestRequestLimitStories compares the answers under a policy that takes its limit from requests with those in
// testdata.
func TestRequestLimitStories(t *testing.T) {
	limit := perMinute(1)
	limit.Max = 5
	f := newFront(t, nil, policy.Policy{Name: "asked", Limits: []policy.Limit{limit}}, tail)
	const one = `{"policy":"asked","identifier":"acme"`
	f.story("request-limits", []step{
		{path: "/v1/take", body: one + `}`},
		{path: "/v1/take", body: one + `}`},
		{path: "/v1/take", body: one + `,"limit":3}`},
		{path: "/v1/check", body: one + `,"limit":2}`},
		{path: "/v1/take", body: `{"demands":[` + oneTail + `,` + one + `,"limit":4}]}`},
		{path: "/v1/record", body: one + `,"limit":5}`},
		{path: "/v1/take", body: one + `,"limit":6}`},
		{path: "/v1/take", body: `{"demands":[` + one + `,"limit":6}]}`},
		{path: "/v1/take", body: one + `,"cost":5,"limit":4}`},
		{path: "/v1/batch", body: `{"operations":[{"op":"check","policy":"asked","identifier":"acme","limit":5},` +
			`{"op":"check","policy":"asked","identifier":"acme","limit":6}]}`},
		{path: "/v1/explain", body: one + `,"limit":5}`},
		{path: "/v1/explain", body: one + `,"limit":6}`},
		{method: "GET", path: "/v1/policies/asked"},
	})
}
