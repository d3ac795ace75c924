package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// targets are the targets of requests, as the application must see them.
var targets = []string{
	"/?a=1;b=2&c=3", "/?a=%zz&b=2", "/?x=100%", "/?%", "/?;", "/?a=b;", "/?a&&b&", "/?=", "/?a=b?c=d", "/?a=b#c", "/?a+b=%20",
	"/?q=%2B+%c3%a9", "/?q=\"<>^`{|}\\", "/?q=\u00e9\xff", "/x?", "/x??", "/?" + strings.Repeat("a=;&", 400),
	"/", "//", "//x//y/", "/a%2Fb", "/a%2fb", "/%41", "/%7Ea~", "/a;b=c,d", "/a:b@c!$&'()*+=", "/a%20b%22", "/a%c3%a9",
}

// echoTarget answers with the target of its request.
func echoTarget(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }

// TestTargetsArePassedOnAsSent holds that targets are passed on unchanged by HTTP/1.1: the proxy does not read queries.
func TestTargetsArePassedOnAsSent(t *testing.T) {
	f := newFront(t, "- {path: /, limits: []}", echoTarget)
	for _, target := range targets {
		for _, form := range []string{target, "http://a" + target} {
			if strings.HasPrefix(target, "//") && form != target {
				continue // net/url knows no such form of it
			}
			_, answers := f.dial("GET " + form + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			answer, err := io.ReadAll(answers)
			if _, got, _ := strings.Cut(string(answer), "\r\n\r\n"); got != target || err != nil {
				t.Errorf("%.80q: the application sees %.80q, %v", form, got, err)
			}
			f.wait()
		}
	}
}

// TestTargetsOfHTTP2 holds that targets are passed on unchanged by HTTP/2.
func TestTargetsOfHTTP2(t *testing.T) {
	f := newFront(t, "- {path: /, limits: []}", echoTarget)
	client := f.overHTTP2()
	ask := func(target string) (int, string) {
		r := f.request("GET", "/", "")
		r.URL.Path, r.URL.RawPath = "", ""
		if r.URL.Opaque = target; strings.HasPrefix(target, "//") {
			return http.StatusOK, target // net/http does not send it so
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatalf("%.80q: %v", target, err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		f.wait()
		return res.StatusCode, string(body)
	}
	for _, target := range targets {
		if status, got := ask(target); status != http.StatusOK || got != target {
			t.Errorf("%.80q: %d, the application sees %.80q", target, status, got)
		}
	}
	// By HTTP/1.1, the application would read another target.
	if status, got := ask("/login?a HTTP/1.0"); status != http.StatusBadRequest || !strings.Contains(got, "send %20") {
		t.Errorf("a query with a space: %d %s", status, got)
	}
}

// TestTrailersArePassedOn holds that trailers are passed on, except those that identify or match requests.
func TestTrailersArePassedOn(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two, identify: 'header:X-Tenant'}]}", func(w http.ResponseWriter, r *http.Request) {
		announced := len(r.Trailer)
		_, _ = io.Copy(io.Discard, r.Body)
		var all []string
		for name, values := range r.Trailer {
			all = append(all, name+"="+strings.Join(values, ","))
		}
		slices.Sort(all)
		w.Header().Set("Trailer", "X-Sum-Out")
		fmt.Fprint(w, announced, all)
		w.Header().Set("X-Sum-Out", "9")
	})
	_, answers := f.dial("POST / HTTP/1.1\r\nHost: a\r\nX-Tenant: a\r\nTransfer-Encoding: chunked\r\n" +
		"TE: trailers\r\nConnection: close, TE\r\nTrailer: X-Sum, X-Empty, X-Tenant, X_Tenant\r\n\r\n" +
		"3\r\nabc\r\n0\r\nX-Sum: 7\r\nX-Tenant: b\r\nX_Tenant: b\r\nX-Late: 1\r\n\r\n")
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "2 [X-Empty= X-Sum=7]" {
		t.Errorf("the application sees %s, %v", body, err)
	}
	if got := res.Trailer.Get("X-Sum-Out"); got != "9" {
		t.Errorf("the client sees %q", got)
	}
}
