package api

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// TestHeaderFamilies holds the headers of each choice.
func TestHeaderFamilies(t *testing.T) {
	for _, c := range []struct {
		flag string
		want []string
	}{
		{"", []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
		{"ietf", []string{"Ratelimit", "Ratelimit-Policy"}},
		{"x-ratelimit", []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
		{"x-rate-limit", []string{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining"}},
		{" ietf , x-rate-limit", []string{"Ratelimit", "Ratelimit-Policy", "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining"}},
		{"none", nil},
		{"ietf-07,x-rate-limit", []string{"Ratelimit", "Ratelimit-Policy", "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining"}},
	} {
		families, err := encode.ParseHeaders(c.flag)
		if err != nil {
			t.Fatal(err)
		}
		f := newFront(t, &Options{Headers: families}, smsSend)
		f.do(http.MethodPost, "/v1/record", strings.Replace(one, "}", `,"cost":9}`, 1))
		res := f.do(http.MethodPost, "/v1/take", one)
		var got []string
		for name := range res.Header {
			if strings.Contains(name, "Rate") {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || res.Header.Get("Retry-After") == "" {
			t.Errorf("%q: %v, want %v and Retry-After", c.flag, got, c.want)
		}
	}
}

// TestHeadersOfDrafts holds that the headers of each draft can be read by its readers. That of draft 07 is npm's
// ratelimit-header-parser 0.1, which uses these expressions for every RateLimit, and can not read later drafts.
func TestHeadersOfDrafts(t *testing.T) {
	const unnamed = "3;w=3600, 4;w=86400"
	for flag, want := range map[string]map[string]string{
		"ietf": {
			"RateLimit-Policy": `"per-hour";q=3;w=3600, "per-day";q=4;w=86400`,
			"RateLimit":        `"per-hour";r=1;t=3600, "per-day";r=2;t=43200`,
		},
		"ietf-07": {"RateLimit-Policy": unnamed, "RateLimit": `limit=3, remaining=1, reset=3600`, "RateLimit-Remaining": ""},
	} {
		families, err := encode.ParseHeaders(flag)
		if err != nil {
			t.Fatal(err)
		}
		f := newFront(t, &Options{Headers: families}, smsSend)
		res := f.do(http.MethodPost, "/v1/record", strings.Replace(one, "}", `,"cost":2}`, 1))
		for name, value := range want {
			if got := res.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", flag, name, got, value)
			}
		}
		if flag != "ietf-07" {
			continue
		}
		for parameter, value := range map[string]string{"limit": "3", "remaining": "1", "reset": "3600"} {
			found := regexp.MustCompile(`(?i)` + parameter + `\s*=\s*(\d+)`).FindStringSubmatch(res.Header.Get("RateLimit"))
			if len(found) != 2 || found[1] != value {
				t.Errorf("%s is read as %q, want %s", parameter, found, value)
			}
		}
	}
}
