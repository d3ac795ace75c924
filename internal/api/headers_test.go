package api

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestHeaderFamilies lists the headers of each choice.
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
		{"ietf-06", []string{"Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining", "Ratelimit-Reset"}},
		{"ietf-07,x-rate-limit", []string{"Ratelimit", "Ratelimit-Policy", "X-Rate-Limit-Limit", "X-Rate-Limit-Remaining"}},
	} {
		families, err := ParseHeaders(c.flag)
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

// TestParseHeaders reads back what String writes and refuses the rest.
func TestParseHeaders(t *testing.T) {
	for _, text := range []string{"ietf,x-ratelimit", "x-rate-limit", "none", "ietf,x-ratelimit,x-rate-limit",
		"x-ratelimit,ietf-06", "ietf-07"} {
		if f, err := ParseHeaders(text); err != nil || f.String() != text {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
	if f := HeaderFamilies(0); f.String() != "ietf,x-ratelimit" {
		t.Errorf("the zero value is %q", f)
	}
	for _, text := range []string{"IETF", "ietf,", "none,ietf", "x", "ietf,ietf-07", "ietf-06,ietf-07", "none,ietf-06"} {
		if f, err := ParseHeaders(text); err == nil {
			t.Errorf("%q: %q, want an error", text, f)
		}
	}
}

// TestHeadersOfDrafts holds the headers that tell of a decision to what each draft's
// readers read. That of 07 is what npm's ratelimit-header-parser 0.1 looks for wherever
// there is a RateLimit, by these expressions: it reads nothing of a later draft's.
func TestHeadersOfDrafts(t *testing.T) {
	const unnamed = "3;w=3600, 4;w=86400"
	for flag, want := range map[string]map[string]string{
		"ietf": {
			"RateLimit-Policy": `"per-hour";q=3;w=3600, "per-day";q=4;w=86400`,
			"RateLimit":        `"per-hour";r=1;t=3600, "per-day";r=2;t=43200`,
		},
		"ietf-07": {"RateLimit-Policy": unnamed, "RateLimit": `limit=3, remaining=1, reset=3600`, "RateLimit-Remaining": ""},
		"ietf-06": {
			"RateLimit-Policy": unnamed, "RateLimit": "",
			"RateLimit-Limit": "3", "RateLimit-Remaining": "1", "RateLimit-Reset": "3600",
		},
	} {
		families, err := ParseHeaders(flag)
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

// fieldList is RFC 9651's grammar of a List of Strings with two Integer parameters.
var fieldList = regexp.MustCompile(`^` + fieldItem + `(, ` + fieldItem + `)*$`)

const fieldItem = `"([ !#-\[\]-~]|\\["\\])*"(;[a-z]=-?[0-9]{1,15}){2}`

// FuzzFields makes structured fields of any names and numbers.
func FuzzFields(f *testing.F) {
	f.Add("per-hour", int64(10), int64(9), int64(3600e9))
	f.Add(`a"\`, int64(1e15), int64(1e15), int64(1))
	f.Add("é\x00\x7f\r\n", int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, name string, limit, remaining, ns int64) {
		if limit < 0 || remaining < 0 || ns < 0 {
			return
		}
		l := limiter.LimitDecision{
			Limit:   &limiter.Limit{Name: name, Limit: limit, Window: time.Duration(ns)},
			Verdict: limiter.Verdict{Remaining: remaining, ResetAfter: time.Duration(ns)},
		}
		limits := []limiter.LimitDecision{l, l}
		for _, field := range [][]byte{appendPolicyField(nil, limits), appendLimitField(nil, limits)} {
			if !fieldList.Match(field) {
				t.Errorf("%q is no list of structured fields", field)
			}
		}
	})
}

// TestRetryAfterOfADenialWithoutWait still says a second: two instances that met
// at the limit can both be denied, with nothing to wait for.
func TestRetryAfterOfADenialWithoutWait(t *testing.T) {
	limit := &tail.Limits[0]
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 1001 * time.Millisecond: "2", limiter.Never: ""} {
		verdict := limiter.Verdict{RetryAfter: wait}
		h := make(http.Header)
		d := &limiter.Decision{Verdict: verdict}
		d.SetLimits([]limiter.LimitDecision{{Limit: limit, Verdict: verdict}})
		setHeaders(h, d, HeadersNone)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", wait, got, want)
		}
	}
}
