package envoy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// edge is a file of policies whose domain edge has one descriptor of every kind.
const edge = `
policies:
  - {name: per-address, limits: [{algorithm: fixed-window, limit: 2, window: 1m}], count: all}
  - {name: per-path, limits: [{algorithm: fixed-window, limit: 3, window: 1h}]}
  - {name: login, limits: [{algorithm: sliding-log, limit: 1, window: 90s}]}
  - {name: monthly, limits: [{algorithm: fixed-window, limit: 5000000000, window: month}]}
  - {name: shadowed, limits: [{algorithm: fixed-window, limit: 1, window: 24h}], mode: shadow}
  - {name: never, limits: [{algorithm: fixed-window, limit: 0, window: 1s}]}
  - name: two
    limits:
      - {name: short, algorithm: fixed-window, limit: 4, window: 7d}
      - {name: long, algorithm: fixed-window, limit: 2, window: 30d}
envoy:
  response_headers: {limit: RateLimit-Limit, remaining: RateLimit-Remaining, reset: RateLimit-Reset, retry_after: Retry-After}
  domains:
    - domain: edge
      descriptors:
        - {key: remote_address, policy: per-address}
        - {key: remote_address, value: 10.0.*, unlimited: true}
        - {key: remote_address, value: 10.0.0.9, policy: never, name: banned}
        - key: generic_key
          value: login
          policy: per-path
          descriptors:
            - {key: remote_address, policy: login}
            - {key: tenant, descriptors: [{key: user, policy: login}]}
        - {key: path, policy: per-path, name: paths}
        - {key: path, value: /files/*, policy: per-path, shared: true}
        - {key: path, value: "/a/*/c", policy: two}
        - {key: plan, value: gold, unlimited: true, replaces: [paths]}
        - {key: month, policy: monthly}
        - {key: shadow, policy: shadowed}
        - {key: quota, policy: never, quota: true}
        - {key: quota, value: left, policy: per-path, quota: true}
        - {key: quota, value: more, policy: two, quota: true}
`

// TestLimits holds the answers during a window: denials, remaining units, and the end.
func TestLimits(t *testing.T) {
	f := newFront(t, edge, settings{})
	f.wants(f.ask("remote_address=192.0.2.1"), "OK; OK 1 of 2/MINUTE per-address 45s")
	f.wants(f.ask("remote_address=192.0.2.1"), "OK; OK 0 of 2/MINUTE per-address 45s")
	f.wants(f.ask("remote_address=192.0.2.1"), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE per-address 45s")
	f.wants(f.ask("remote_address=192.0.2.2"), "OK; OK 1 of 2/MINUTE per-address 45s")
	f.clock.turn(44500 * time.Millisecond)
	f.wants(f.ask("remote_address=192.0.2.1"), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE per-address 1s")
	f.clock.turn(500 * time.Millisecond)
	f.wants(f.ask("remote_address=192.0.2.1"), "OK; OK 1 of 2/MINUTE per-address 60s")
}

// TestWhichDescriptorHolds holds the order in which values, patterns and keys are tried, and that a mapping applies
// only to descriptors that end there.
func TestWhichDescriptorHolds(t *testing.T) {
	f := newFront(t, edge, settings{})
	for _, test := range []struct {
		entries []string
		want    string
	}{
		{[]string{"remote_address=10.0.0.9"}, "OVER_LIMIT; OVER_LIMIT 0 of 0/SECOND banned 0s"},
		{[]string{"remote_address=10.0.0.8"}, "OK; OK 4294967295"},
		{[]string{"remote_address=10.1.0.8"}, "OK; OK 1 of 2/MINUTE per-address 45s"},
		{[]string{"remote_address="}, "OK; OK 1 of 2/MINUTE per-address 45s"},
		{[]string{"generic_key=login"}, "OK; OK 2 of 3/HOUR per-path 3585s"},
		{[]string{"generic_key=logout"}, "OK; OK 0"},
		{[]string{"generic_key=login", "remote_address=10.0.0.9"}, "OK; OK 0 of 1/UNKNOWN login 90s"},
		{[]string{"generic_key=login", "tenant=a"}, "OK; OK 0"},
		{[]string{"generic_key=login", "tenant=a", "user=b"}, "OK; OK 0 of 1/UNKNOWN login 90s"},
		{[]string{"generic_key=login", "tenant=a", "user=b", "more=c"}, "OK; OK 0"},
		{[]string{"generic_key=login", "user=b"}, "OK; OK 0"},
		{[]string{"remote_address=192.0.2.7", "generic_key=login"}, "OK; OK 0"},
		{[]string{"unknown=x"}, "OK; OK 0"},
		{nil, "OK; OK 0"},
		{[]string{"path=/a/b/c"}, "OK; OK 1 of 2/MONTH two 993585s"},
		{[]string{"path=/a/b/c/d"}, "OK; OK 2 of 3/HOUR paths 3585s"},
		{[]string{"month=11"}, "OK; OK 4294967295 of 4294967295/MONTH monthly 820785s"},
	} {
		if got := summary(f.ask(test.entries...)); got != test.want {
			t.Errorf("%q: got %s\nwant %s", test.entries, got, test.want)
		}
	}
	other := &rls.RateLimitRequest{Domain: "mesh", Descriptors: []*common.RateLimitDescriptor{descriptor("remote_address=10.0.0.9")}}
	f.wants(f.send(other), "OK; OK 0")
	if f.told("mesh") || !f.told("edge") || !f.told(envoy.DomainUnknown) {
		t.Errorf("want to be told of edge and %s, and not of mesh", envoy.DomainUnknown)
	}
}

// TestDescriptorsAreCountedEachOnItsOwn holds that several descriptors of a request are counted independently.
func TestDescriptorsAreCountedEachOnItsOwn(t *testing.T) {
	f := newFront(t, edge, settings{})
	both := request(descriptor("remote_address=10.0.0.9"), descriptor("path=/x"))
	f.wants(f.send(both), "OVER_LIMIT; OVER_LIMIT 0 of 0/SECOND banned 0s; OK 2 of 3/HOUR paths 3585s")
	f.wants(f.send(both), "OVER_LIMIT; OVER_LIMIT 0 of 0/SECOND banned 0s; OK 1 of 3/HOUR paths 3585s")
	same := request(descriptor("remote_address=192.0.2.1"), descriptor("remote_address=192.0.2.1"), descriptor("none=of"))
	f.wants(f.send(same), "OK; OK 1 of 2/MINUTE per-address 45s; OK 0 of 2/MINUTE per-address 45s; OK 0")
	_, outcomes := f.seen()
	want := []envoy.Outcome{"denied", "allowed", "denied", "allowed", "allowed", "allowed", "unmatched"}
	if !slices.Equal(outcomes, want) {
		t.Errorf("told of %q, want %q", outcomes, want)
	}
}

// TestHits holds which number of hits counts, and that 0 hits count nothing.
func TestHits(t *testing.T) {
	f := newFront(t, edge, settings{})
	r := request(descriptor("path=/x"), hits(descriptor("path=/y"), 3))
	r.HitsAddend = 2
	f.wants(f.send(r), "OK; OK 1 of 3/HOUR paths 3585s; OK 0 of 3/HOUR paths 3585s")
	none := request(hits(descriptor("path=/x"), 0), hits(descriptor("path=/y"), 0))
	none.HitsAddend = 2
	for range 2 {
		f.wants(f.send(none), "OVER_LIMIT; OK 1 of 3/HOUR paths 3585s; OVER_LIMIT 0 of 3/HOUR paths 3585s")
	}
}

// TestHitsThatNeverFit holds that hits that are reported afterwards count if denied attempts do, however many they are.
func TestHitsThatNeverFit(t *testing.T) {
	f := newFront(t, edge, settings{})
	f.wants(f.send(request(hits(descriptor("path=/x"), 9))), "OVER_LIMIT; OVER_LIMIT 0 of 3/HOUR paths 0s")
	f.wants(f.ask("path=/x"), "OK; OK 2 of 3/HOUR paths 3585s")
	f.wants(f.send(request(hits(descriptor("remote_address=192.0.2.1"), 9))), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE per-address 45s")
	f.wants(f.ask("remote_address=192.0.2.1"), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE per-address 45s")
	most := request(hits(descriptor("path=/y"), policy.MaxCost))
	f.wants(f.send(most), "OVER_LIMIT; OVER_LIMIT 0 of 3/HOUR paths 0s")
}

// TestReplaces holds that limits are replaced by name within a request, also by unlimited ones.
func TestReplaces(t *testing.T) {
	f := newFront(t, edge, settings{})
	gold := request(descriptor("path=/x"), descriptor("plan=gold"))
	for range 4 {
		f.wants(f.send(gold), "OK; OK 0; OK 4294967295")
	}
	f.wants(f.ask("path=/x"), "OK; OK 2 of 3/HOUR paths 3585s")
	_, outcomes := f.seen()
	if want := []envoy.Outcome{"replaced", "unlimited"}; !slices.Equal(outcomes[:2], want) {
		t.Errorf("told of %q, want %q", outcomes[:2], want)
	}
}

func TestSharedValuesAreCountedAsOne(t *testing.T) {
	f := newFront(t, edge, settings{})
	f.wants(f.ask("path=/files/a"), "OK; OK 2 of 3/HOUR per-path 3585s")
	f.wants(f.ask("path=/files/b"), "OK; OK 1 of 3/HOUR per-path 3585s")
	f.wants(f.ask("path=/other"), "OK; OK 2 of 3/HOUR paths 3585s")
}

func TestShadowAllows(t *testing.T) {
	f := newFront(t, edge, settings{})
	f.wants(f.ask("shadow=x"), "OK; OK 0 of 1/DAY shadowed 43185s")
	f.wants(f.ask("shadow=x"), "OK; OK 0 of 1/DAY shadowed 43185s")
}

// TestQuotasDenyTogether holds that a request passes if one quota has units, and that no quota overrides a limit.
func TestQuotasDenyTogether(t *testing.T) {
	f := newFront(t, edge, settings{})
	const lacking = "OVER_LIMIT 0 of 0/SECOND never 0s"
	f.wants(f.ask("quota=x"), "OVER_LIMIT; "+lacking)
	f.wants(f.send(request(descriptor("quota=x"), descriptor("quota=left"))), "OK; "+lacking+"; OK 2 of 3/HOUR per-path 3585s")
	f.wants(f.send(request(descriptor("quota=x"), descriptor("quota=y"))), "OVER_LIMIT; "+lacking+"; "+lacking)
	f.wants(f.send(request(descriptor("quota=left"), descriptor("remote_address=10.0.0.9"))),
		"OVER_LIMIT; OK 1 of 3/HOUR per-path 3585s; OVER_LIMIT 0 of 0/SECOND banned 0s")
}

// TestHeaders holds which descriptor the headers describe.
func TestHeaders(t *testing.T) {
	f := newFront(t, edge, settings{})
	want := func(r *rls.RateLimitResponse, want ...string) {
		t.Helper()
		var got []string
		for _, h := range r.GetResponseHeadersToAdd() {
			got = append(got, h.GetKey()+": "+h.GetValue())
		}
		if !slices.Equal(got, want) {
			t.Errorf("headers %q, want %q", got, want)
		}
	}
	want(f.ask("unknown=x"))
	want(f.ask("remote_address=10.0.0.1"))
	want(f.send(request(descriptor("path=/x"), descriptor("remote_address=192.0.2.1"))),
		"RateLimit-Limit: 2", "RateLimit-Remaining: 1", "RateLimit-Reset: 45")
	want(f.send(request(descriptor("month=1"), descriptor("path=/x"))),
		"RateLimit-Limit: 3", "RateLimit-Remaining: 1", "RateLimit-Reset: 3585")
	want(f.send(request(descriptor("path=/x"), descriptor("remote_address=192.0.2.1"))),
		"RateLimit-Limit: 3", "RateLimit-Remaining: 0", "RateLimit-Reset: 3585")
	want(f.send(request(descriptor("path=/x"), descriptor("remote_address=192.0.2.1"))),
		"RateLimit-Limit: 3", "RateLimit-Remaining: 0", "RateLimit-Reset: 3585", "Retry-After: 3585")
	want(f.send(request(descriptor("path=/x"), descriptor("remote_address=10.0.0.9"))),
		"RateLimit-Limit: 0", "RateLimit-Remaining: 0", "RateLimit-Reset: 0")
	want(f.send(request(hits(descriptor("quota=left"), 3))), "RateLimit-Limit: 3", "RateLimit-Remaining: 0", "RateLimit-Reset: 3585")
	want(f.send(request(descriptor("quota=more"), descriptor("quota=left"))), // which passes
		"RateLimit-Limit: 3", "RateLimit-Remaining: 0", "RateLimit-Reset: 3585")
}

// TestLimitador holds the semantics of Limitador's methods: a check counts nothing and needs one unit, and a report
// counts whatever the limit.
func TestLimitador(t *testing.T) {
	f := newFront(t, edge, settings{})
	call := func(method string, r *rls.RateLimitRequest) *rls.RateLimitResponse {
		t.Helper()
		out := new(rls.RateLimitResponse)
		return f.answered(out, f.conn.Invoke(context.Background(), "/kuadrant.service.ratelimit.v1.RateLimitService/"+method, r, out))
	}
	r := request(descriptor("path=/x"))
	r.HitsAddend = 4
	for range 2 {
		f.wants(call("CheckRateLimit", r), "OK; OK 3 of 3/HOUR paths 0s")
	}
	f.wants(call("Report", r), "OK; OK 0 of 3/HOUR paths 3585s")
	f.wants(call("CheckRateLimit", r), "OVER_LIMIT; OVER_LIMIT 0 of 3/HOUR paths 3585s")
	f.wants(call("Report", request(hits(descriptor("path=/y"), 0))), "OK; OK 3 of 3/HOUR paths 0s")
	requests, _ := f.seen()
	want := []string{"CheckRateLimit OK", "CheckRateLimit OK", "Report OK", "CheckRateLimit OVER_LIMIT", "Report OK"}
	if !slices.Equal(requests, want) {
		t.Errorf("observed %q, want %q", requests, want)
	}
}

// TestMappingIsReplacedWhole holds that requests use the mapping in force.
func TestMappingIsReplacedWhole(t *testing.T) {
	f := newFront(t, edge, settings{})
	f.ask("path=/x")
	f.load(`
policies:
  - {name: per-path, limits: [{algorithm: fixed-window, limit: 5, window: 1h}]}
envoy: {domains: [{domain: edge, descriptors: [{key: path, policy: per-path}]}]}
`)
	f.wants(f.ask("path=/x"), "OK; OK 3 of 5/HOUR per-path 3585s")
	f.wants(f.ask("remote_address=10.0.0.9"), "OK; OK 0")
	f.load("policies:\n  - {name: other, limits: [{algorithm: fixed-window, limit: 5, window: 1h}]}\n")
	f.wants(f.ask("path=/x"), "OK; OK 0")
}

// TestRefusedNumbers holds that a number that a rule of its policy refuses is denied, and that numbers of a country
// have their own limit.
func TestRefusedNumbers(t *testing.T) {
	f := newFront(t, `
policies:
  - name: numbers
    limits: [{algorithm: fixed-window, by: {"+4915112345678": 2, default: 1}, window: 1m}]
    normalize: e164
    countries: {allow: [DE]}
envoy:
  domains: [{domain: edge, descriptors: [{key: phone, policy: numbers, identifier: phone}]}]
`, settings{})
	f.wants(f.ask("phone=+33 6 12345678"), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE numbers 0s")
	f.wants(f.ask("phone=+49 151 12345678"), "OK; OK 1 of 2/MINUTE numbers 45s")
	f.wants(f.ask("phone=+49 151 12345679"), "OK; OK 0 of 1/MINUTE numbers 45s")
}
