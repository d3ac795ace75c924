package origin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// TestSources identifies the sender of a request by each source.
func TestSources(t *testing.T) {
	for _, c := range []struct {
		source  string
		headers []string // pairs
		want    string
	}{
		{"ip", nil, "198.51.100.1"},
		{"ip", []string{"X-Api-Key", "k"}, "198.51.100.1"},
		{"header:x-tenant", []string{"X-Tenant", "acme"}, "acme"},
		{"header:X-Tenant", nil, "ip\n198.51.100.1"},
		{"header:X-Tenant", []string{"X-Tenant", ""}, "ip\n198.51.100.1"},
		{"header:X-Tenant", []string{"X-Tenant", "acme", "X-Tenant", "other"}, "ip\n198.51.100.1"}, // who comes after may take either
		{"header:X-Tenant", []string{"X-Tenant", "\xff"}, "sha256\na8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"},
		{"api-key", []string{"X-Api-Key", "k"}, "k"},
		{"api-key", []string{"X-Api-Key", "k", "Authorization", "Basic YWxpY2U6c2VjcmV0"}, "k"},
		{"api-key", []string{"X-Api-Key", "k", "Authorization", "Bearer t"}, "ip\n198.51.100.1"},
		{"api-key", []string{"Authorization", "bearer  t"}, "t"},
		{"api-key", []string{"Authorization", "Basic YWxpY2U6c2VjcmV0"}, "ip\n198.51.100.1"},
		{"api-key", []string{"X-Api-Key", "made up", "Authorization", "Bearer\tt"}, "ip\n198.51.100.1"},
		{"api-key", []string{"X-Api-Key", "made up", "Authorization", "Bearer t", "Authorization", "Bearer t"}, "ip\n198.51.100.1"},
		{"api-key", []string{"X-Api-Key", "k", "Authorization", "Bearer"}, "k"},
		{"user", []string{"Authorization", "Basic YWxpY2U6c2VjcmV0"}, "alice"},
		{"user", []string{"Authorization", "Basic YWxpY2U6c2VjcmV0", "Authorization", "Basic YWxpY2U6c2VjcmV0"}, "ip\n198.51.100.1"},
		{"user", nil, "ip\n198.51.100.1"},
		{"all", []string{"X-Api-Key", "k"}, "all\n"},
	} {
		source, err := origin.ParseSource(c.source)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:80"
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		proxies, err := origin.ParseProxies("10.0.0.0/8")
		if got, hidden := source.Identify(r, proxies); got != c.want || err != nil || hidden != nil {
			t.Errorf("%s, %q: %q, want %q, %v", c.source, c.headers, got, c.want, err)
		}
	}
}

func TestSourcesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "IP", "ip:x", "header", "header:", "header:a b", "header:a\n", "cookie:a", "header:Host"} {
		if s, err := origin.ParseSource(text); err == nil {
			t.Errorf("%q is %s", text, s)
		}
	}
	for _, text := range []string{"ip", "header:X-Tenant", "api-key", "user", "all"} {
		if s, err := origin.ParseSource(text); err != nil || s.String() != text {
			t.Errorf("%q is %q, %v", text, s, err)
		}
	}
	if s := (origin.Source{}); s.String() != "ip" {
		t.Errorf("the zero source is %s", s)
	}
}

func TestProxies(t *testing.T) {
	proxies, err := origin.ParseProxies("10.0.0.0/8, 192.0.2.7,::1")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"64:ff9b::10.0.0.1": false, "[2002:a00:1::1]:80": false, "::10.0.0.1": false, // what forwards for 10.0.0.1 is another machine
		"10.1.2.3:4": true, "192.0.2.7": true, "192.0.2.8": false, "[::1]:80": true, "::2": false, "@": false, "[::ffff:10.0.0.1]:1": true,
	} {
		if got := proxies.Trust(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
	for _, text := range []string{"", " ", "none"} {
		if none, err := origin.ParseProxies(text); err != nil || len(none) > 0 {
			t.Errorf("%q: %v, %v", text, none, err)
		}
	}
	for _, text := range []string{"10.0.0.1/8", "host", "10.0.0.0/33", "10.0.0.1,", "fe80::1%eth0"} {
		if _, err := origin.ParseProxies(text); err == nil || !strings.Contains(err.Error(), "10.0.0.0/8") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestAnUnknownAddressIsSomebody: an empty identifier would be refused, and pass.
func TestAnUnknownAddressIsSomebody(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = ""
	if got, err := (origin.Source{}).Identify(r, nil); got != "ip\nunknown" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNobodyTakesAnothersPlace by a name that is told from no address, or from no hash.
func TestNobodyTakesAnothersPlace(t *testing.T) {
	source, err := origin.ParseSource("user")
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "198.51.100.1:80"
	for _, name := range []string{"ip\n203.0.113.7", "all\n", "sha256\n00"} {
		r.SetBasicAuth(name, "secret")
		if got, err := source.Identify(r, nil); got != "ip\n198.51.100.1" || err != nil {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
}

// TestNamesAreToldFromAddresses: nobody drains another one's limit by calling themselves as its
// address.
func TestNamesAreToldFromAddresses(t *testing.T) {
	for _, name := range []string{"203.0.113.7", "2001:db8:1:2::/64", "2001:DB8:1:2::/64", "203.0.113.0/24", "203.0.113.7\u00a0", "::1", "@"} {
		for source, header := range map[string]string{"header:X-Tenant": "X-Tenant", "api-key": "X-Api-Key", "user": ""} {
			by, err := origin.ParseSource(source)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if r.Header.Set(header, name); header == "" {
				if r.SetBasicAuth(name, ""); strings.Contains(name, ":") {
					continue // a user name has none
				}
			}
			if got, err := by.Identify(r, nil); got != "name\n"+name || err != nil {
				t.Errorf("%s, %s: %q, %v", source, name, got, err)
			}
		}
	}
}

// TestProxiesThatHideTheirClients are not taken for them: everybody behind one would be one client.
func TestProxiesThatHideTheirClients(t *testing.T) {
	proxies, err := origin.ParseProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		remote  string
		headers []string
		want    string // empty: hidden
	}{
		{"10.0.0.1:80", []string{"unknown"}, ""},
		{"10.0.0.1:80", []string{"_hidden"}, ""},
		{"10.0.0.1:80", []string{"198.51.100.1, unknown"}, ""},
		{"10.0.0.1:80", []string{"unknown, 10.0.0.2"}, ""},
		{"10.0.0.1:80", []string{"198.51.100.1", "example.com"}, ""},
		{"10.0.0.1:80", []string{"unknown, 198.51.100.1"}, "198.51.100.1"}, // the client says so
		{"10.0.0.1:80", []string{"198.51.100.1, "}, "198.51.100.1"},
		{"10.0.0.1:80", []string{"198.51.100.1", "", " , "}, "198.51.100.1"},
		{"10.0.0.1:80", []string{",,"}, "10.0.0.1"},
		{"198.51.100.1:80", []string{"unknown"}, "198.51.100.1"}, // who is not trusted
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = c.remote, c.headers
		for source, want := range map[string]string{"ip": c.want, "user": "ip\n" + c.want, "all": "all\n"} {
			by, err := origin.ParseSource(source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := by.Identify(r, proxies)
			if hidden := c.want == "" && source != "all"; errors.Is(err, origin.ErrHidden) != hidden || !hidden && got != want {
				t.Errorf("%s, %q by %s: %q, %v", c.remote, c.headers, source, got, err)
			}
		}
	}
}

// TestMappedProxies are trusted, however the list and the connection have their addresses.
func TestMappedProxies(t *testing.T) {
	for _, list := range []string{"::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "10.0.0.1"} {
		proxies, err := origin.ParseProxies(list)
		if err != nil {
			t.Fatal(err)
		}
		for address, want := range map[string]bool{"10.0.0.1:80": true, "[::ffff:10.0.0.1]:80": true, "11.0.0.1:80": false} {
			if got := proxies.Trust(address); got != want {
				t.Errorf("%s, of %s: %t", address, list, got)
			}
		}
	}
}
