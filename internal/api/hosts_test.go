package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// hostRequests are one request of each kind that reads, changes or counts something.
var hostRequests = []struct{ method, path, body string }{
	{"POST", "/v1/take", one}, {"POST", "/v1/check", one}, {"POST", "/v1/record", one}, {"POST", "/v1/batch", operationsOf(oneOp)},
	{"POST", "/v1/refund", `{"receipt":"a"}`}, {"POST", "/v1/confirm", `{"receipt":"a"}`},
	{"POST", "/v1/reset", one}, {"POST", "/v1/explain", one},
	{"POST", "/v1/overrides", blockOne}, {"GET", "/v1/overrides", ""}, {"POST", "/v1/overrides/get", one},
	{"POST", "/v1/overrides/delete", one}, {"GET", "/v1/policies", ""}, {"GET", "/v1/policies/api", ""},
	{"GET", "/v1/policies/api/overshoot", ""}, {"GET", "/v1/policies/api/shadow", ""},
	{"GET", "/metrics", ""}, {"GET", forwardAuth + "api", ""},
}

// sentTo returns the status of a request to host.
func (f *front) sentTo(host, method, path, body string, headers ...string) int {
	f.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	checkContract(f.t, r, body, w)
	return w.Code
}

// TestStrangeHosts holds that a server without authentication refuses requests to other host names, and changes
// nothing. With tokens, names do not matter.
func TestStrangeHosts(t *testing.T) {
	hosts, err := ParseHosts("limits.example.org, Ratelimitd")
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Hosts: &hosts, ForwardAuth: gateways, Metrics: http.NotFoundHandler(),
		Overshoot: new(overshot).of, Shadow: noShadow,
	}
	f := newFront(t, &opts, smsSend, tail)
	for _, c := range hostRequests {
		for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", "[evil]",
			"127.0.0.1:80:80", "limits.example.org.evil.example", "", ":8080"} {
			if status := f.sentTo(host, c.method, c.path, c.body); status != http.StatusForbidden {
				t.Errorf("%s %s at %q: %d", c.method, c.path, host, status)
			}
		}
		for _, host := range []string{"127.0.0.1", "127.0.0.1:8080", "10.0.0.1:80", "[::1]:8080", "[::1]", "localhost", "LOCALHOST:1",
			"localhost.", "limits.example.org:443", "ratelimitd"} {
			if status := f.sentTo(host, c.method, c.path, c.body); status == http.StatusForbidden {
				t.Errorf("%s %s at %q: %d", c.method, c.path, host, status)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		if status := f.sentTo("evil.example", "GET", path, ""); status != http.StatusOK {
			t.Errorf("%s tells nothing: %d", path, status)
		}
	}
	opts.Keyring = keyring(t, "all scopes: [decide, record, admin, metrics]")
	f = newFront(t, &opts, smsSend, tail)
	for _, c := range hostRequests {
		if status := f.sentTo("evil.example", c.method, c.path, c.body, bearer("all")...); status == http.StatusForbidden {
			t.Errorf("%s %s with a token: %d", c.method, c.path, status)
		}
	}
}

// TestForeignPages holds that bodies of the kinds that a page of another site can send without a preflight request are
// not read.
func TestForeignPages(t *testing.T) {
	f := newFront(t, nil, smsSend)
	for _, kind := range []string{"", "text/plain", "text/plain;application/json", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "text/plain; charset=utf-8"} {
		for _, path := range []string{"/v1/take", "/v1/reset", "/v1/overrides"} {
			if status := f.sentTo("127.0.0.1", "POST", path, one, "Content-Type", kind); status != http.StatusUnsupportedMediaType {
				t.Errorf("%s of %q: %d", path, kind, status)
			}
		}
	}
	r := httptest.NewRequest("OPTIONS", "/v1/reset", nil)
	r.Header.Set("Origin", "http://evil.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	if w.Code < 400 || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page may ask: %d %v", w.Code, w.Header())
	}
}

// TestParseHosts holds which texts are host names.
func TestParseHosts(t *testing.T) {
	for text, count := range map[string]int{"": 0, "a": 1, "a,b.c": 2, "a , A": 1, "a_b-c.d": 1, "xn--nxasmq6b": 1} {
		if got, err := ParseHosts(text); err != nil || len(got) != count {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{",", "a,", "a:80", "http://a", "*.a", "a..b", "a.", "-a", "a b", strings.Repeat("a", 254)} {
		if got, err := ParseHosts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestPagesOfOtherSites holds that a page of another site can not make an administrator's browser change anything.
// Other callers are not asked for the origin.
func TestPagesOfOtherSites(t *testing.T) {
	f := newFront(t, nil, smsSend, tail)
	for _, c := range []struct {
		header, value string
		want          bool // it is refused
	}{
		{"Sec-Fetch-Site", "cross-site", true}, {"Sec-Fetch-Site", "same-site", true}, {"Origin", "https://evil.example", true},
		{"Origin", "null", true}, {"Sec-Fetch-Site", "same-origin", false}, {"Sec-Fetch-Site", "none", false},
		{"Origin", "http://127.0.0.1:8080", false}, {"Accept", "*/*", false},
	} {
		for _, path := range []string{"/v1/reset", "/v1/explain", "/v1/overrides", "/v1/overrides/get", "/v1/overrides/delete"} {
			body := one
			if path == "/v1/overrides" {
				body = blockOne
			}
			status := f.sentTo("127.0.0.1:8080", "POST", path, body, c.header, c.value)
			if refused := status == http.StatusForbidden; refused != c.want {
				t.Errorf("%s with %s: %s is answered %d", path, c.header, c.value, status)
			}
		}
	}
	if status := f.sentTo("127.0.0.1:8080", "POST", "/v1/take", one, "Sec-Fetch-Site", "cross-site"); status == http.StatusForbidden {
		t.Error("a take is refused")
	}
}
