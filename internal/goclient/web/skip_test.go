package web_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

// TestSkipLists checks that clients on a list are not limited, and that no client can claim to be one.
func TestSkipLists(t *testing.T) {
	s := ratelimittest.New(t, policies)
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h := httplimit.New(s.Client(nil), &httplimit.Options{Skip: httplimit.SkipAny(
		httplimit.SkipPaths("/healthz", "/static/"),
		httplimit.SkipIdentifiers(httplimit.APIKey(), "", "ours"),
		httplimit.SkipNetworks(httplimit.IP(proxies...),
			netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::ffff:198.51.100.0/120"),
			netip.MustParsePrefix("2001:db8::/48"), netip.MustParsePrefix("2001:db9::/128")),
	)}).Policy("closed")(ok)
	const other = "203.0.113.7:1"
	mustBe(t, "200 200 429 429", ask(h, "GET", "/healthz", other), ask(h, "GET", "/static/a", other),
		ask(h, "GET", "/healthz/a", other), ask(h, "GET", "/", other))
	mustBe(t, "429 429 200", ask(h, "GET", "/static/../a", other), ask(h, "GET", "/static/%2e%2e/a", other),
		ask(h, "GET", "/static/..a", other))
	mustBe(t, "200 429", ask(h, "GET", "/", other, "X-Api-Key", "ours"), ask(h, "GET", "/", other, "X-Api-Key", "mine"))
	mustBe(t, "200 200 429 429", ask(h, "GET", "/", "192.0.2.9:1"), ask(h, "GET", "/", "[2001:db8:0:9::1]:1"),
		ask(h, "GET", "/", "[2001:db8:1::1]:1"), ask(h, "GET", "/", "[2001:db9::1]:1")) // of a /64, not one address
	mustBe(t, "200 200 429", ask(h, "GET", "/", "[::ffff:192.0.2.9]:1"), ask(h, "GET", "/", "198.51.100.1:1"),
		ask(h, "GET", "/", "198.51.101.1:1"))
	mustBe(t, "429 200", ask(h, "GET", "/", other, "X-Forwarded-For", "192.0.2.9"),
		ask(h, "GET", "/", "10.0.0.1:1", "X-Forwarded-For", "192.0.2.9"))
	if r := httptest.NewRequest("GET", "/a", nil); httplimit.SkipNetworks(httplimit.Path(), netip.MustParsePrefix("0.0.0.0/0"))(r) {
		t.Error("a path is in a network")
	}
}
