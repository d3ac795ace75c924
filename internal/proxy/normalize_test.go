package proxy_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestWhoCannotBeCounted holds that a request without an address is refused under a policy of addresses.
func TestWhoCannotBeCounted(t *testing.T) {
	f := newFront(t, byTenant, hello)
	two := policies[0]
	two.Normalize = policy.Normalize{Form: policy.FormIP}
	if err := f.engine.SetPolicies([]policy.Policy{two}); err != nil {
		t.Fatal(err)
	}
	f.mustBe(200, "GET", "/", "", "X-Tenant", "203.0.113.7")
	res, body := f.send(f.request("GET", "/", "", "X-Tenant", "acme"))
	if res.StatusCode != 400 || !strings.Contains(body, `"field":"identifier"`) || strings.Contains(body, "acme") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
