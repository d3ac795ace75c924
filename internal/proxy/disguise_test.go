package proxy_test

import (
	"testing"
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
	f.mustBe(200, "POST", "/search", "")
}
