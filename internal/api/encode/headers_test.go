package encode

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestParseHeaders holds that texts of String are read back, and others are refused.
func TestParseHeaders(t *testing.T) {
	for _, text := range []string{"ietf,x-ratelimit", "x-rate-limit", "none", "ietf,x-ratelimit,x-rate-limit",
		"x-ratelimit,ietf-07", "ietf-07"} {
		if f, err := ParseHeaders(text); err != nil || f.String() != text {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
	if f := HeaderFamilies(0); f.String() != "ietf,x-ratelimit" {
		t.Errorf("the zero value is %q", f)
	}
	for _, text := range []string{"IETF", "ietf,", "none,ietf", "x", "ietf,ietf-07", "ietf-06", "none,ietf-07"} {
		if f, err := ParseHeaders(text); err == nil {
			t.Errorf("%q: %q, want an error", text, f)
		}
	}
}

// FuzzParseHeaders holds that texts of String are read back.
func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{
		"", "none", "ietf,x-ratelimit", " x-rate-limit ,ietf", "ietf,none", ",", "ietf,ietf", "ietf-07", "ietf-07,none",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		families, err := ParseHeaders(text)
		if err != nil {
			return
		}
		if again, err := ParseHeaders(families.String()); err != nil || again.String() != families.String() {
			t.Fatalf("%q became %q, and that %q, %v", text, families, again, err)
		}
	})
}

// fieldList is RFC 9651's grammar of a List of Strings with two Integer parameters.
var fieldList = regexp.MustCompile(`^` + fieldItem + `(, ` + fieldItem + `)*$`)

const fieldItem = `"([ !#-\[\]-~]|\\["\\])*"(;[a-z]=-?[0-9]{1,15}){1,2}`

// FuzzFields holds that any names and numbers make structured fields.
func FuzzFields(f *testing.F) {
	f.Add("per-hour", int64(10), int64(9), int64(3600e9))
	f.Add(`a"\`, int64(1e15), int64(1e15), int64(1))
	f.Add("é\x00\x7f\r\n", int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, name string, limit, remaining, ns int64) {
		if limit < 0 || remaining < 0 || ns < 0 {
			return
		}
		l := count.LimitDecision{
			Limit:   &policy.Limit{Name: name, Limit: limit, Window: time.Duration(ns)},
			Verdict: count.Verdict{Remaining: remaining, ResetAfter: time.Duration(ns)},
		}
		l.RetryAfter = min(l.ResetAfter, time.Second)
		limits := []count.LimitDecision{l, l}
		d := &count.Decision{Verdict: l.Verdict}
		d.SetLimits(limits)
		for _, field := range [][]byte{appendPolicyField(nil, limits), appendLimitField(nil, d)} {
			if !fieldList.Match(field) {
				t.Errorf("%q is no list of structured fields", field)
			}
		}
	})
}

// TestRetryAfterOfADenialWithoutWait holds that Retry-After is a second at least: two instances that met at the limit
// can both be denied, with nothing to wait for.
func TestRetryAfterOfADenialWithoutWait(t *testing.T) {
	limit := &policy.Limit{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 1001 * time.Millisecond: "2", count.Never: ""} {
		verdict := count.Verdict{RetryAfter: wait}
		h := make(http.Header)
		d := &count.Decision{Verdict: verdict}
		d.SetLimits([]count.LimitDecision{{Limit: limit, Verdict: verdict}})
		SetHeaders(h, d, HeadersNone)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", wait, got, want)
		}
	}
}

// TestResetIsNotAfterRetryAfter holds that no t is later than Retry-After, which the draft forbids.
func TestResetIsNotAfterRetryAfter(t *testing.T) {
	limit := func(name string) *policy.Limit {
		return &policy.Limit{Name: name, Algorithm: "sliding-log", Limit: 10, Window: time.Hour}
	}
	room := count.Verdict{Allowed: true, Used: 1, Remaining: 9, ResetAfter: time.Hour}
	full := count.Verdict{Used: 10, ResetAfter: time.Hour, RetryAfter: 3588 * time.Second}
	soon := count.Verdict{Used: 10, ResetAfter: time.Minute, RetryAfter: 500 * time.Millisecond}
	closed := count.Verdict{RetryAfter: count.Never}
	for name, c := range map[string]struct {
		verdicts          []count.Verdict
		want, in07, retry string
	}{
		"room":               {[]count.Verdict{room}, `"a";r=9;t=3600`, "limit=10, remaining=9, reset=3600", ""},
		"no room":            {[]count.Verdict{full}, `"a";r=0;t=3588`, "limit=10, remaining=0, reset=3588", "3588"},
		"room in one":        {[]count.Verdict{full, room}, `"a";r=0;t=3588, "b";r=9`, "limit=10, remaining=0, reset=3588", "3588"},
		"none in both":       {[]count.Verdict{full, soon}, `"a";r=0;t=3588, "b";r=0;t=1`, "limit=10, remaining=0, reset=3588", "3588"},
		"never":              {[]count.Verdict{closed}, `"a";r=0`, "limit=10, remaining=0, reset=0", ""},
		"never, and no room": {[]count.Verdict{closed, full}, `"a";r=0, "b";r=0;t=3588`, "limit=10, remaining=0, reset=0", ""},
	} {
		d := &count.Decision{Policy: &policy.Policy{Mode: policy.ModeEnforce}}
		limits := make([]count.LimitDecision, len(c.verdicts))
		for i, v := range c.verdicts {
			limits[i] = count.LimitDecision{Limit: limit(string(rune('a' + i))), Verdict: v}
		}
		d.SetLimits(limits)
		d.Conclude()
		h, old := make(http.Header), make(http.Header)
		SetHeaders(h, d, HeadersIETF)
		SetHeaders(old, d, HeadersIETF07)
		if got := h.Get("RateLimit"); got != c.want || h.Get("Retry-After") != c.retry || old.Get("RateLimit") != c.in07 {
			t.Errorf("%s: %s, Retry-After %s, in draft 07 %s; want %s, %s, %s",
				name, got, h.Get("Retry-After"), old.Get("RateLimit"), c.want, c.retry, c.in07)
		}
	}
}
