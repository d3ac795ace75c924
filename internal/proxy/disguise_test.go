package proxy_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// TestPathsOfTwoMeanings holds that a path is refused if its route depends on its meaning: some applications take an
// escaped slash for a part of a name, or remove parameters.
func TestPathsOfTwoMeanings(t *testing.T) {
	f := newFront(t, `
- {name: item, path: "/items/{id}", limits: [{policy: two}]}
- {name: login, path: /login, limits: [{policy: two}]}
- {name: files, path: /files/, limits: []}
- {name: name, path: "/names/{id}", limits: []}
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
		{"/%256cogin", "none Bad Request"}, // which is /login to applications that decode twice
		{"/%25256cogin", "none Bad Request"},
		{"/l%256fgin/", "none Bad Request"},
		{"/items%252Fa", "none Bad Request"},
		{"/items/a%252Fb", "none Bad Request"},
		{"/items/a%255Cb", "none Bad Request"},
		{"/login%253Bx", "none Bad Request"},
		{"/login%250a", "none Bad Request"},
		{"/files/%252e%252e/login", "none Bad Request"},
		{"/names/100%25", "name OK"},
		{"/names/a%25zz", "name OK"},
		{"/names/a%2541", "name OK"}, // the same route by each meaning
		{"/files/a%252Fb%253B", "files OK"},
	} {
		_, _ = f.dial("GET " + c.target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := f.wait(); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
	}
}

// TestHostsOfTwoMeanings holds that hosts with two meanings are refused: some applications use the text before the
// first colon, others before the last.
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

// TestPathsWithAnEnding holds that paths with an ending that applications ignore have the route without it, or are
// refused.
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

// TestPathsWithAFormat holds that paths with a format have the route whose pattern has one.
func TestPathsWithAFormat(t *testing.T) {
	f := newFront(t, `
- {name: login, path: /login, limits: []}
- {name: login-as, path: "/login.{format}", limits: []}
- {name: version, path: "/v{n}/items", limits: []}
`, hello)
	for _, c := range []struct{ target, want string }{
		{"/login", "login OK"},
		{"/login.", "login OK"},
		{"/login.json", "login-as OK"},
		{"/LOGIN.JSON/", "login-as OK"},
		{"/login.a.b", "login-as OK"},
		{"/login%2ejson", "login-as OK"},
		{"/loginjson", "none OK"},
		{"/login.json/x", "none OK"},
		{"/v2/items", "version OK"},
		{"/v/items", "none OK"},
	} {
		_, _ = f.dial("GET " + c.target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := f.wait(); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
	}
}

// TestOverridingHeaders holds that headers which override the method or the path do not reach the application, unless
// they are kept or a route matches on them.
func TestOverridingHeaders(t *testing.T) {
	const routes = "- {path: /delete, headers: {X-Forwarded-Method: DELETE}, limits: []}\n- {path: /, limits: []}"
	const overriding = "X-Original-URL: 1\r\nX-Original-Uri: 2\r\nX-Rewrite-URL: 3\r\nX-HTTP-Method-Override: 4\r\nX-HTTP-Method: 5\r\n" +
		"X-Method-Override: 6\r\nX_Original_Url: 7\r\nx.rewrite.url: 8\r\nX-Original-Method: 9\r\nX-Forwarded-Uri: 10\r\nX-Forwarded-Path: 11\r\n"
	seen := func(w http.ResponseWriter, r *http.Request) {
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		_, _ = io.WriteString(w, strings.Join(names, " "))
	}
	for kept, want := range map[string]string{
		"none":                   "X-Forwarded-For X-Forwarded-Host X-Forwarded-Method X-Forwarded-Proto X-Other",
		"x-http-method-override": "X-Forwarded-For X-Forwarded-Host X-Forwarded-Method X-Forwarded-Proto X-Http-Method-Override X-Other",
	} {
		f := newFront(t, routes, seen, func(o *proxy.Options) {
			var err error
			if o.KeepHeaders, err = proxy.ParseKeepHeaders(kept); err != nil {
				t.Fatal(err)
			}
		})
		const request = "GET / HTTP/1.1\r\nHost: a\r\nX-Other: a\r\nX-Forwarded-Method: DELETE\r\nConnection: close\r\n"
		_, answers := f.dial(request + overriding + "\r\n")
		answer, err := io.ReadAll(answers)
		if _, got, _ := strings.Cut(string(answer), "\r\n\r\n"); got != want || err != nil {
			t.Errorf("keeping %s, the application sees %s, want %s, %v", kept, got, want, err)
		}
	}
	for text, wrong := range map[string]bool{"": false, "X-Original-URL, X-HTTP-Method": false, "X-Other": true, "X-Original-URL,": true} {
		if _, err := proxy.ParseKeepHeaders(text); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), "X-Rewrite-Url") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestHEADIsAGET holds that HEAD has the route of GET: applications do the same work for both.
func TestHEADIsAGET(t *testing.T) {
	f := newFront(t, "- {path: /search, methods: [GET], limits: [{policy: two}]}", hello)
	f.mustBe(200, "HEAD", "/search", "")
	f.mustBe(200, "GET", "/search", "")
	f.mustBe(429, "HEAD", "/search", "")
	f.mustBe(429, "get", "/search", "")
	f.mustBe(200, "POST", "/search", "")
}

// TestUpgradesToOtherHTTP holds that upgrades to another version of HTTP are removed: further requests would not be
// limited.
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

// TestReportsOfRoutesWithoutLimits holds that clients do not see reported units of routes without limits.
func TestReportsOfRoutesWithoutLimits(t *testing.T) {
	f := newFront(t, "- {path: /free, limits: []}", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(proxy.CostHeader, "7") })
	for _, path := range []string{"/free", "/other"} {
		if got := f.mustBe(200, "GET", path, "").Header.Get(proxy.CostHeader); got != "" {
			t.Errorf("%s reports %s", path, got)
		}
	}
}
