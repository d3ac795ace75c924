package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// TestPathsOfTwoMeanings are nobody's, if it depends on the meaning which route they are of:
// some applications take an escaped slash for a part of a name, or a parameter off its end.
func TestPathsOfTwoMeanings(t *testing.T) {
	f := newFront(t, `
- {name: item, path: "/items/{id}", limits: [{policy: two}]}
- {name: login, path: /login, limits: [{policy: two}]}
- {name: files, path: /files/, limits: []}
`, hello)
	for _, c := range []struct{ target, want string }{
		{"/items/a%2Fb", "none Bad Request"},
		{"/items/a%2fb", "none Bad Request"},
		{"/items%2Fa", "none Bad Request"},
		{"/login;jsessionid=1", "none Bad Request"},
		{"/login%3Bx", "none Bad Request"},
		{"/login;a/;b", "none Bad Request"},
		{"/items/a;b", "item OK"},
		{"/files/a%2Fb", "files OK"},
		{"/files/a;b", "files OK"},
		{"/other/a%2Fb;c", "none OK"},
		{"/items/..;/files/a", "none Bad Request"},
		{`/items\a`, "none Bad Request"},
		{"/items/a%5Cb", "none Bad Request"},
		{`/files/..\login`, "none Bad Request"},
		{"/items/a;b%5C..%5Clogin", "none Bad Request"},
		{"/files/a%5Cb", "files OK"},
	} {
		_, _ = f.dial("GET " + c.target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := f.wait(); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
	}
}

// TestHostsOfTwoMeanings are nobody's: some applications go by what is in front of the first colon,
// others by what is in front of the last.
func TestHostsOfTwoMeanings(t *testing.T) {
	f := newFront(t, `
- {name: api, host: api.example.com, limits: []}
- {name: six, host: "[2001:db8::1]", limits: []}
`, hello)
	for _, c := range []struct{ host, want string }{
		{"api.example.com", "api"},
		{"API.example.com.:8080", "api"},
		{"[2001:DB8:0::1]:80", "six"},
		{"other_1.example.com", "none"},
		{"192.0.2.1:80", "none"},
		{"api.example.com:80:80", "refused"},
		{"api.example.com:x:y", "refused"},
		{"api.example.com:80:", "refused"},
		{"api.example.com:", "refused"},
		{"api.example.com:x", "refused"},
		{"api.example.com:-80", "refused"},
		{"api.example.com..", "refused"},
		{".api.example.com", "refused"},
		{"api..example.com", "refused"},
		{"api.example.com,other", "refused"},
		{"api%2Eexample.com", "refused"},
		{"me@api.example.com", "refused"},
		{"[2001:db8::1]x:80", "refused"},
		{"[2001:db8::1%25eth0]", "refused"},
		{"[192.0.2.1]", "refused"},
		{"2001:db8::1", "refused"},
		{"", "refused"},
	} {
		_, answers := f.dial("GET / HTTP/1.1\r\nHost: " + c.host + "\r\nConnection: close\r\n\r\n")
		line, err := answers.ReadString('\n')
		got := "refused" // some by net/http already, which tells nobody
		if err == nil && !strings.Contains(line, " 400 ") {
			got, _, _ = strings.Cut(f.wait(), " ")
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.host, got, c.want)
		}
	}
	for len(f.seen) > 0 {
		<-f.seen
	}
	_, _ = f.dial("GET / HTTP/1.0\r\n\r\n") // as old health checks do
	if got := f.wait(); got != "none OK" {
		t.Errorf("without a host: %s", got)
	}
}

// TestPathsWithAnEnding that applications do not see, or take for none, are of the route without
// it, or nobody's.
func TestPathsWithAnEnding(t *testing.T) {
	f := newFront(t, `
- {name: login, path: /login, limits: []}
- {name: item, path: "/items/{id}", limits: []}
`, hello)
	for _, c := range []struct{ target, want string }{
		{"/login%0a", "none Bad Request"},
		{"/login%0A/", "none Bad Request"},
		{"/login%00", "none Bad Request"},
		{"/login%09", "none Bad Request"},
		{"/login%0d", "none Bad Request"},
		{"/%7flogin", "none Bad Request"},
		{"/login%c2%85", "none Bad Request"}, // the next line, of Unicode
		{"/login%00%2f", "none Bad Request"},
		{"/login%20", "login OK"},
		{"/login%20%20.", "login OK"},
		{"/login.", "login OK"},
		{"/login%2e", "login OK"},
		{"/login%c2%a0", "login OK"},
		{"/items%20/5.", "item OK"},
		{"/login;x%20", "none Bad Request"},
		{"/login%20;x", "none Bad Request"},
		{"/items/...", "none Bad Request"},
		{"/login/..%20", "none Bad Request"},
		{"/login/%20", "none Bad Request"},
		{"/items/v1.2", "item OK"},
		{"/items/.well-known", "item OK"},
	} {
		_, _ = f.dial("GET " + c.target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := f.wait(); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
	}
}

// TestHEADIsAGET whose answer is not sent: applications do the same work for both.
func TestHEADIsAGET(t *testing.T) {
	f := newFront(t, "- {path: /search, methods: [GET], limits: [{policy: two}]}", hello)
	f.mustBe(200, "HEAD", "/search", "")
	f.mustBe(200, "GET", "/search", "")
	f.mustBe(429, "HEAD", "/search", "")
	f.mustBe(429, "get", "/search", "")
	f.mustBe(200, "POST", "/search", "")
}

// TestUpgradesToOtherHTTP are not asked for: what came next would be requests that nobody limits.
func TestUpgradesToOtherHTTP(t *testing.T) {
	f := newFront(t, "- {path: /, limits: []}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "asked for "+r.Header.Get("Upgrade")+r.Header.Get("Http2-Settings"))
	})
	for _, c := range [][2]string{
		{"h2c", ""}, {"H2C", ""}, {"websocket, h2c", ""}, {"websocket\r\nUpgrade: h2c", ""}, {"TLS/1.0, HTTP/1.1", ""},
		{"websocket", "websocket"},
	} {
		_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: " + c[0] + "\r\nConnection: close, Upgrade\r\n\r\n")
		answer, err := io.ReadAll(answers)
		if !strings.HasSuffix(string(answer), "\r\n\r\nasked for "+c[1]) || err != nil {
			t.Errorf("%s: %s, %v", c[0], answer, err)
		}
	}
}

// TestReportsOfRoutesWithoutLimits are for nobody else.
func TestReportsOfRoutesWithoutLimits(t *testing.T) {
	f := newFront(t, "- {path: /free, limits: []}", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(proxy.CostHeader, "7") })
	for _, path := range []string{"/free", "/other"} {
		if got := f.mustBe(200, "GET", path, "").Header.Get(proxy.CostHeader); got != "" {
			t.Errorf("%s reports %s", path, got)
		}
	}
}
