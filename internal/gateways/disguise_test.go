package gateways_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// page is the origin whose pages may read a denial, by the examples.
const page = "https://www.example.com"

// mustPassOnWhatWasCounted fails if a valid key reaches the application more often than it may,
// however it is disguised behind made-up ones.
func (b *behind) mustPassOnWhatWasCounted(t *testing.T, g *gateway) {
	t.Helper()
	for _, other := range []string{"X-Api-Key", "x-api-key", "X_Api_Key", "x-api_key", "X.Api.Key", "X_Api.Key"} {
		seen := 0
		for i := range room + 3 {
			valid := "valid by " + other
			a := g.send(t, http.MethodGet, "/a", "", "X-Api-Key", fmt.Sprint("made up ", other, i), other, valid)
			if strings.Contains(fmt.Sprint(a.header["Seen"]), valid) {
				seen++
			}
		}
		if seen > room {
			t.Errorf("%s: the application sees the key %d times, its limit is %d", other, seen, room)
		}
	}
}

// mustLimitMadeUpKeys fails if an address has no limit that is its own, whatever keys it sends.
func (g *gateway) mustLimitMadeUpKeys(t *testing.T) {
	t.Helper()
	for i := range addressRoom {
		if a := g.send(t, http.MethodGet, "/a", "", "X-Api-Key", fmt.Sprint("made up ", i)); a.status != http.StatusOK {
			t.Fatalf("key %d: %d %q", i, a.status, a.body)
		}
	}
	if a := g.send(t, http.MethodGet, "/a", "", "X-Api-Key", "made up"); a.status != http.StatusTooManyRequests {
		t.Errorf("one key more than an address has requests: %d %q", a.status, a.body)
	}
}

// mustTakeLargeBodies fails unless bodies of two megabytes are a matter of the application's.
func (g *gateway) mustTakeLargeBodies(t *testing.T) {
	t.Helper()
	large := strings.Repeat("x", 2<<20)
	if a := g.send(t, http.MethodPost, "/a", large, "X-Api-Key", "large"); a.status != http.StatusOK || !strings.HasSuffix(a.body, large) {
		t.Errorf("%d %.100q", a.status, a.body)
	}
}

// mustExemptPreflights fails unless what a browser asks by itself is answered and not counted,
// and nothing else passes by its name. It returns the answer to one.
func (b *behind) mustExemptPreflights(t *testing.T, g *gateway) (last answer) {
	t.Helper()
	b.asked.Store(nil)
	for range room + 1 {
		last = g.send(t, http.MethodOptions, "/a", "", "Origin", page, "Access-Control-Request-Method", "PUT",
			"Access-Control-Request-Headers", "x-api-key", "X-Api-Key", "k", "Authorization", "Bearer k", "Cookie", "a=b")
		if last.status != http.StatusOK && last.status != http.StatusNoContent || last.header["Seen"] != nil {
			t.Errorf("%d %v %q", last.status, last.header, last.body)
		}
	}
	if b.asked.Load() != nil {
		t.Error("a preflight is counted")
	}
	g.mustPassNoBodies(t)
	for _, headers := range [][]string{nil, {"Origin", page}, {"Access-Control-Request-Method", "PUT"}} {
		b.asked.Store(nil)
		g.send(t, http.MethodOptions, "/a", "", append(headers, "X-Api-Key", "no preflight")...)
		if b.asked.Load() == nil {
			t.Errorf("OPTIONS with %v is not counted", headers)
		}
	}
	return last
}

// mustPassNoBodies fails if the body of a preflight reaches the application, whether its length is
// known before or not, once the limit of its sender is used up.
func (g *gateway) mustPassNoBodies(t *testing.T) {
	t.Helper()
	for range room {
		g.send(t, http.MethodGet, "/a", "", "X-Api-Key", "spent")
	}
	large := strings.Repeat("x", 5<<20)
	for _, length := range []int64{int64(len(large)), -1} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, g.url+"/a", io.NopCloser(strings.NewReader(large)))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		r.Header = http.Header{"Origin": {page}, "Access-Control-Request-Method": {"PUT"}, "X-Api-Key": {"spent"}}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			continue // the gateway reads no more
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if strings.Contains(string(body), "xx") {
			t.Errorf("a body of length %d passes: %d", length, res.StatusCode)
		}
	}
}

// mustShareDenials fails unless pages of an origin that is listed, and of no other, may read a
// denial; and what the application says itself stays.
func (g *gateway) mustShareDenials(t *testing.T) {
	t.Helper()
	for range room {
		a := g.send(t, http.MethodGet, "/a", "", "Origin", page, "X-Api-Key", "shared")
		if got := a.header["Access-Control-Allow-Origin"]; a.status != http.StatusOK || len(got) != 1 || got[0] != page {
			t.Errorf("%d, %v", a.status, a.header)
		}
	}
	for origin, want := range map[string]string{page: page, "https://evil.example.com": ""} {
		a := g.send(t, http.MethodGet, "/a", "", "Origin", origin, "X-Api-Key", "shared")
		if got := a.header.Get("Access-Control-Allow-Origin"); a.status != http.StatusTooManyRequests || got != want ||
			want != "" && !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "Retry-After") {
			t.Errorf("%s: %d, %v", origin, a.status, a.header)
		}
	}
}
