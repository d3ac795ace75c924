package conformance_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/clients/conformance"
)

// TestAddressesTellClients reads the table of addresses, as those of connections and as forwarded by proxies.
func TestAddressesTellClients(t *testing.T) {
	trusted, err := origin.ParseProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conformance.Addresses(t) {
		if got := origin.CallerOf(c.Address); got != c.Caller {
			t.Errorf("%s is %s, want %s: %s", c.Address, got, c.Caller, c.Why)
		}
		direct := httptest.NewRequest(http.MethodGet, "/", nil)
		direct.RemoteAddr = c.Address
		forwarded := httptest.NewRequest(http.MethodGet, "/", nil)
		forwarded.RemoteAddr = "10.0.0.1:80"
		forwarded.Header.Set("X-Forwarded-For", c.Address)
		for _, r := range []*http.Request{direct, forwarded} {
			if got, err := trusted.Client(r); got != c.Caller || err != nil {
				t.Errorf("%s by %s is %s, want %s: %s (error %v)", c.Address, r.RemoteAddr, got, c.Caller, c.Why, err)
			}
		}
	}
	for _, text := range []string{"", "@", "unknown", "203.0.113.07"} {
		if got := origin.CallerOf(text); got != text {
			t.Errorf("%q is %q", text, got)
		}
	}
}
