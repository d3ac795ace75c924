package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
)

// FuzzServerURL parses URLs of servers: one that is taken holds no password and no query.
func FuzzServerURL(f *testing.F) {
	for _, seed := range []string{"127.0.0.1:0", ":8080", "http://a/b", "https://u:p@a", "a:80", "//a", "a?b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if u, err := serverURL(text); err == nil && (u.Hostname() == "" || u.User != nil || u.RawQuery != "") {
			t.Fatalf("%q: %v", text, u)
		}
	})
}

// FuzzRefusals reads what any server may answer: nothing that is printed of an error steers a
// terminal, and no more than is bounded.
func FuzzRefusals(f *testing.F) {
	const allowed = `{"allowed":true,"policy":"p","limit":1,"limits":[{"name":"n","allowed":true,"limit":1,"retry_after_ms":0}]}`
	f.Add(http.StatusOK, mediaJSON, "id", "", []byte(allowed))
	f.Add(http.StatusTooManyRequests, mediaProblem, "", "", []byte(strings.ReplaceAll(allowed, "true", "false")))
	f.Add(http.StatusOK, mediaJSON, "", "",
		[]byte(`{"allowed":true,"policy":"\u001b[31m","limits":[{}],"receipt":"\u202e","would_allow":false}`))
	f.Add(http.StatusServiceUnavailable, mediaProblem, "\x1b", "", []byte(`{"detail":"\u0007","field":"a\nb","recorded":"unknown"}`))
	f.Add(http.StatusFound, "text/\x1bhtml", "", "http://\u009b31m/", []byte("<html>"))
	server, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, mediaType, requestID, location string, body []byte) {
		a := &Answer{server: server, Status: status, MediaType: mediaType, requestID: requestID, Body: body}
		a.location, _ = url.Parse(location)
		if p := a.Problem(); p != nil && status == http.StatusNotFound && p.Field == "policy" {
			return // it would ask for the policies
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		checkPrintable(t, new(Client).Refused(ctx, &Question{Route: "take"}, a).Error())
	})
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Fatalf("%q steers a terminal", text)
	}
}
