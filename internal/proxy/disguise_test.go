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
