package proxy_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestNamesDrainNoAddress: a header that reads as an address is another caller than that address,
// under the same policy.
func TestNamesDrainNoAddress(t *testing.T) {
	f := newFront(t, "- {path: /named, limits: [{policy: two, identify: 'header:X-Api-Key'}]}\n- {path: /, limits: [{policy: two}]}", hello)
	for range 2 {
		f.mustBe(200, "GET", "/named", "", "X-Api-Key", here)
	}
	f.mustBe(429, "GET", "/named", "", "X-Api-Key", here)
	f.mustHaveUsed(0, "two", here)
	f.mustBe(200, "GET", "/", "")
	f.mustHaveUsed(1, "two", here)
}

// TestAddressesOfHeaders are addresses to a policy that knows nothing else.
func TestAddressesOfHeaders(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two, identify: 'header:X-Real-Ip'}]}", hello)
	two := policies[0]
	two.Normalize = limiter.Normalize{Form: limiter.FormIPv6Net}
	if err := f.engine.SetPolicies([]limiter.Policy{two}); err != nil {
		t.Fatal(err)
	}
	f.mustBe(200, "GET", "/", "", "X-Real-Ip", "203.0.113.7")
	f.mustHaveUsed(1, "two", "203.0.113.7")
	f.mustBe(200, "GET", "/", "", "X-Real-Ip", "2001:DB8::1")
	f.mustHaveUsed(1, "two", "2001:db8::/64")
}

// TestAProxyThatHidesItsClients is not their address: all would share one limit.
func TestAProxyThatHidesItsClients(t *testing.T) {
	f := newFront(t, "- {path: /named, limits: [{policy: other, identify: 'header:X-Tenant'}]}\n- {path: /, limits: [{policy: two}]}", hello,
		trust("127.0.0.0/8"))
	for _, hidden := range []string{"unknown", "_hidden", "203.0.113.9, unknown"} {
		res, body := f.send(f.request("GET", "/", "", "X-Forwarded-For", hidden))
		if res.StatusCode != 400 || !strings.Contains(body, "does not tell which address") {
			t.Errorf("%s: %d %s", hidden, res.StatusCode, body)
		}
		f.mustBe(400, "GET", "/named", "", "X-Forwarded-For", hidden)
	}
	f.mustHaveUsed(0, "two", here)
	f.mustBe(200, "GET", "/named", "", "X-Forwarded-For", "unknown", "X-Tenant", "acme") // the address is not needed
	f.mustBe(200, "GET", "/", "", "X-Forwarded-For", "203.0.113.9, ")
	f.mustHaveUsed(1, "two", "203.0.113.9")
	f.mustBe(200, "GET", "/", "") // a request of the proxy's own
}
