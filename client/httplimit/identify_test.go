package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

func TestAddresses(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48"),
		netip.MustParsePrefix("fe80:0:0:1::/64")}
	const forwarded = "X-Forwarded-For"
	for _, c := range []struct {
		remote  string
		headers []string // of X-Forwarded-For
		want    string
	}{
		{"203.0.113.7:4711", nil, "203.0.113.7"},
		{"203.0.113.7:4711", []string{"198.51.100.1"}, "203.0.113.7"},                // the peer is not trusted
		{"10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},                    // of a proxy
		{"10.0.0.1:80", []string{"1.2.3.4, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"}, // the client wrote the first
		{"10.0.0.1:80", []string{"1.2.3.4", "198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"10.0.0.1:80", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"}, // all are trusted
		{"10.0.0.1:80", nil, "10.0.0.1"},
		{"10.0.0.1:80", []string{""}, "10.0.0.1"},
		{"10.0.0.1:80", []string{"198.51.100.1, evil"}, ""}, // the proxy does not say
		{"10.0.0.1:80", []string{"unknown"}, ""},
		{"10.0.0.1:80", []string{"198.51.100.1, "}, "198.51.100.1"},
		{"10.0.0.1:80", []string{"198.51.100.1:5000"}, "198.51.100.1"},
		{"10.0.0.1:80", []string{"[2001:db8:1:2:3::4]:5000"}, "2001:db8:1:2::/64"},
		{"10.0.0.1:80", []string{"2001:db8:1:2:ffff::4"}, "2001:db8:1:2::/64"},
		{"[2001:db8:f::1]:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.0.0.1]:80", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"[fe80::1%eth0]:80", nil, "fe80::/64"},
		{"[fe80:0:0:1::1%eth0]:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"@", []string{"198.51.100.1"}, "@"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		r.Header[forwarded] = c.headers
		if got := httplimit.IP(trusted...)(r); got != c.want {
			t.Errorf("%s, %q: %s, want %s", c.remote, c.headers, got, c.want)
		}
	}
}

// TestHeadersThatAreSentTwice are of nobody: who comes after may go by the other one.
func TestHeadersThatAreSentTwice(t *testing.T) {
	for _, c := range []struct {
		by      httplimit.Identify
		headers []string
	}{
		{httplimit.Header("X-Tenant"), []string{"X-Tenant", "made up", "X-Tenant", "valid"}},
		{httplimit.APIKey(), []string{"X-Api-Key", "made up", "X-Api-Key", "valid"}},
		{httplimit.APIKey(), []string{"X-Api-Key", "made up", "Authorization", "Bearer valid", "Authorization", "Bearer valid"}},
		{httplimit.User(), []string{"Authorization", "Basic YWxpY2U6c2VjcmV0", "Authorization", "Basic Ym9iOnNlY3JldA=="}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		if got := c.by(r); got != "" {
			t.Errorf("%q are %q", c.headers, got)
		}
	}
}

func TestIdentities(t *testing.T) {
	r := httptest.NewRequest("GET", "/a?b", nil)
	for want, by := range map[string]httplimit.Identify{"/a": httplimit.Path()} {
		if got := by(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.Header.Set("Authorization", "bearer  t")
	if got := httplimit.APIKey()(r); got != "t" {
		t.Errorf("%q", got)
	}
	r.Header.Set("X-API-Key", "k")
	if got := httplimit.APIKey()(r); got != "" { // one of them may be made up
		t.Errorf("%q", got)
	}
	r.Header.Del("Authorization")
	if got := httplimit.APIKey()(r); got != "k" {
		t.Errorf("%q", got)
	}
	r.Header.Del("X-API-Key")
	r.SetBasicAuth("alice", "secret")
	if got := httplimit.APIKey()(r); got != "" { // a password is no key
		t.Errorf("%q", got)
	}
	for _, first := range []string{"ip", "all", "sha256", "name"} { // as addresses, everybody and hashes are marked
		r.Header.Set("X-First", first)
		if got := httplimit.Combine(httplimit.Header("X-First"), httplimit.Path())(r); got != "" {
			t.Errorf("%q passes for another", got)
		}
	}
	if got := httplimit.Combine(httplimit.User(), httplimit.Path())(r); got != "alice\n/a" {
		t.Errorf("%q", got)
	}
	r.Header.Del("Authorization")
	if got := httplimit.Combine(httplimit.User(), httplimit.Path())(r); got != "" {
		t.Errorf("%q", got)
	}
}

// TestNamesTakeNobodysPlace: one with a line break could be another one's address.
func TestNamesTakeNobodysPlace(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("ip\n203.0.113.7", "secret")
	if got := httplimit.User()(r); got != "" {
		t.Errorf("it is %q", got)
	}
}

// FuzzIP makes sure that no header makes an address that is trusted by nobody another's.
func FuzzIP(f *testing.F) {
	f.Add("203.0.113.7:1", "198.51.100.1, 10.0.0.1")
	f.Add("[::1%a]:1", ",,:")
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		with := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {forwarded, forwarded}}}
		without := &http.Request{RemoteAddr: remote, Header: http.Header{}}
		if got, want := httplimit.IP()(with), httplimit.IP()(without); got != want {
			t.Errorf("%q becomes %q by a header that nobody vouches for", want, got)
		}
		httplimit.IP(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))(with) // does not panic
	})
}
