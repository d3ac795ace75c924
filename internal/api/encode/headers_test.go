package encode

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

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

// FuzzParseHeaders reads back what String writes.
func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{
		"", "none", "ietf,x-ratelimit", " x-rate-limit ,ietf", "ietf,none", ",", "ietf,ietf", "ietf-06", "ietf-07,none",
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
		l := count.LimitDecision{
			Limit:   &policy.Limit{Name: name, Limit: limit, Window: time.Duration(ns)},
			Verdict: count.Verdict{Remaining: remaining, ResetAfter: time.Duration(ns)},
		}
		limits := []count.LimitDecision{l, l}
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
