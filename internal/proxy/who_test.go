package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/clients/conformance"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestNamesDrainNoAddress holds that a header that reads as an address is another caller than the address, under the
// same policy.
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

// TestAddressesOfHeaders holds that addresses in headers are addresses to a policy of addresses.
func TestAddressesOfHeaders(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two, identify: 'header:X-Real-Ip'}]}", hello)
	two := policies[0]
	two.Normalize = policy.Normalize{Form: policy.FormIPv6Net}
	if err := f.engine.SetPolicies([]policy.Policy{two}); err != nil {
		t.Fatal(err)
	}
	f.mustBe(200, "GET", "/", "", "X-Real-Ip", "203.0.113.7")
	f.mustHaveUsed(1, "two", "203.0.113.7")
	f.mustBe(200, "GET", "/", "", "X-Real-Ip", "2001:DB8::1")
	f.mustHaveUsed(1, "two", "2001:db8::/64")
}

// TestAddresses holds that requests count for the callers in the table of addresses.
func TestAddresses(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: bytes}]}", hello, trust("127.0.0.0/8"))
	for _, c := range conformance.Addresses(t) {
		before := f.used("bytes", c.Caller)
		f.mustBe(200, "GET", "/", "", "X-Forwarded-For", c.Address)
		if after := f.used("bytes", c.Caller); after != before+1 {
			t.Errorf("%s is not %s: %s", c.Address, c.Caller, c.Why)
		}
	}
}

// TestAProxyThatHidesItsClients holds that requests without a client address are refused: all clients would share one
// limit.
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

// TestHeadersThatApplicationsTakeForOthers holds that headers which applications take for those that identify or match
// requests are removed.
func TestHeadersThatApplicationsTakeForOthers(t *testing.T) {
	f := newFront(t, `
- {path: /plan, headers: {X-Plan: pro}, limits: []}
- {path: /odd, limits: [{policy: two, identify: "header:X_Odd"}]}
- {path: /, limits: [{policy: two, identify: api-key}]}
`, func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			_, _ = io.WriteString(w, name+"\n")
		}
	})
	for _, name := range []string{"X_Api_Key", "x-api_key", "X.Api.Key", "X_Plan", "X_Forwarded_For", "X_Real_IP"} {
		request := "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: made up " + name + "\r\n" + name +
			": valid\r\nX_Other: 1\r\nX_Odd: 1\r\nConnection: close\r\n\r\n"
		_, answers := f.dial(request)
		answer, _ := io.ReadAll(answers)
		_, seen, _ := strings.Cut(strings.ToLower(string(answer)), "\r\n\r\n")
		if strings.Contains(seen, strings.ToLower(name)) || !strings.Contains(seen, "x-api-key") || !strings.Contains(seen, "x_other") ||
			!strings.Contains(seen, "x_odd") {
			t.Errorf("%s: the application sees\n%s", name, seen)
		}
	}
}
