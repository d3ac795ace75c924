package proxy_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// TestMistakesHaveTheirLines reads a file of which nearly every line is wrong.
func TestMistakesHaveTheirLines(t *testing.T) {
	const file = `listen: 127.0.0.1:80
routes:
  - path: items
    limit: []
  - {path: /a/*, host: "a b", methods: [get], limits: []}
  - path: /{id}/{
    headers: X-Plan
    limits:
      - {policy: tow, identify: cookie:a, cost: 0}
      - {policy: two, charge: bytes, count: last, statuses: [2x, 700]}
      - {policy: two, charge: reported, cost: 2}
      - {cost: 1, count: first, statuses: 200}
      - two
      - {policy: two, limit: 'header:X-A'}
      - {policy: two, limit: 5}
      - {policy: two, limit: 'header:Host'}
  - {path: /b}
`
	_, err := proxy.Parse("p.yaml", []byte(file), []*policy.Policy{{Name: "two"}})
	if err == nil {
		t.Fatal("no mistakes")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		"p.yaml:3: routes[0].path: \"items\" is not a pattern",
		"p.yaml:4: routes[0].limit: unknown key: did you mean limits?",
		"p.yaml:5: routes[1].path: \"/a/*\" is not a pattern",
		"p.yaml:5: routes[1].host: \"a b\" is not a host",
		"p.yaml:5: routes[1].methods: \"get\" is not a method",
		"p.yaml:6: routes[2].path: \"/{id}/{\" is not a pattern",
		"p.yaml:7: routes[2].headers: text where a map belongs",
		"p.yaml:9: routes[2].limits[0].policy: there is no policy \"tow\": did you mean two?",
		"p.yaml:9: routes[2].limits[0].identify: \"cookie:a\" identifies nobody",
		"p.yaml:9: routes[2].limits[0].cost: a cost is a whole number from 1",
		"p.yaml:10: routes[2].limits[1].charge: \"bytes\" is not known: use one of requests",
		"p.yaml:10: routes[2].limits[1].count: \"last\" is not known: use one of first, served",
		"p.yaml:10: routes[2].limits[1].statuses: \"2x\" is not a status",
		"p.yaml:10: routes[2].limits[1].statuses: \"700\" is not a status",
		"p.yaml:10: routes[2].limits[1].statuses: statuses mean nothing without count: served",
		"p.yaml:11: routes[2].limits[2]: count and cost are of charge: requests",
		"p.yaml:11: routes[2].limits[2].policy: \"two\" limits this route twice",
		"p.yaml:12: routes[2].limits[3]: no policy: name one",
		"p.yaml:12: routes[2].limits[3].statuses: statuses mean nothing",
		"p.yaml:13: routes[2].limits[4]: text where a map belongs",
		"p.yaml:14: routes[2].limits[5].policy: \"two\" limits this route twice",
		"p.yaml:14: routes[2].limits[5].limit: the policy takes no limit from requests: remove limit: from the route",
		"p.yaml:15: routes[2].limits[6].policy: \"two\" limits this route twice",
		"p.yaml:15: routes[2].limits[6].limit: \"5\" is not a header: write header:NAME, such as header:X-Plan-Limit",
		"p.yaml:16: routes[2].limits[7].policy: \"two\" limits this route twice",
		"p.yaml:16: routes[2].limits[7].limit: \"header:Host\" is not a header: write header:NAME",
		"p.yaml:17: routes[3]: no limits: list them",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("mistake %d differs:\n%s", i, err)
		}
	}
}

// TestPatterns holds that a pattern is refused if no request could match it.
func TestPatterns(t *testing.T) {
	for path, ok := range map[string]bool{
		"/login.{format}": true, "/v{n}/items": true, "/{id}": true, "/a/{rest...}": true, "/": true,
		"/login.{}": false, "/{format}.json": false, "/a{b}{c}": false, "/a{b": false, "/a}": false, "/a{{b}}": false,
		"/a{rest...}": false, "/{rest...}/a": false, "/{a}}": false,
	} {
		_, err := proxy.Parse("p.yaml", []byte("routes: [{path: '"+path+"', limits: []}]"), nil)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "routes[0].path") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRoutesOfAnEmptyFile holds that an empty file has no routes.
func TestRoutesOfAnEmptyFile(t *testing.T) {
	for _, file := range []string{"", "upstream: http://a\n", "routes: []\n"} {
		if routes, err := proxy.Parse("p.yaml", []byte(file), nil); len(routes) > 0 || err != nil {
			t.Errorf("%q: %v, %v", file, routes, err)
		}
	}
}

// TestPoliciesThatNobodyKnowsYet holds that policies are not looked up while none are known.
func TestPoliciesThatNobodyKnowsYet(t *testing.T) {
	const file = "routes: [{path: /, limits: [{policy: later, identify: ip}]}]"
	if routes, err := proxy.Parse("p.yaml", []byte(file), nil); len(routes) != 1 || err != nil {
		t.Errorf("%d routes, %v", len(routes), err)
	}
	if _, err := proxy.Parse("p.yaml", []byte(file), []*policy.Policy{{Name: "other"}}); err == nil {
		t.Error("a policy that there is not is taken")
	}
}
