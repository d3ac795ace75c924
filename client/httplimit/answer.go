package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// Media and problem types of answers, as ratelimitd has them.
const (
	mediaProblem = "application/problem+json"
	typeBlank    = "about:blank"
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReduced  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// answerProblem answers with a problem of RFC 9457.
func answerProblem(w http.ResponseWriter, status int, kind, title, detail string) {
	w.Header().Set("Content-Type", mediaProblem)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // an error means that the client is gone
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{kind, title, status, detail})
}

// unavailable answers a request without a decision.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	answerProblem(w, http.StatusServiceUnavailable, typeReduced, "Temporary Reduced Capacity",
		"Nobody can tell whether this is within its limit. Try again shortly.")
}

// refusesIdentifier reports whether err says that the policy does not take the identifier, and returns why: it is not a
// phone number, for example.
func refusesIdentifier(err error) (detail string, refused bool) {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || !errors.Is(err, client.ErrInvalid) || !strings.HasSuffix(p.Field, "identifier") {
		return "", false
	}
	return p.Detail, true
}

// badRequest answers a request without a valid identifier. If it passed, nothing would limit it.
func badRequest(w http.ResponseWriter, detail string) {
	answerProblem(w, http.StatusBadRequest, typeBlank, "Bad Request", detail)
}

// tooLarge answers a request that costs more than a limit can ever hold. If it passed, its size would evade the limit.
func tooLarge(w http.ResponseWriter) {
	answerProblem(w, http.StatusRequestEntityTooLarge, typeBlank, "Request Entity Too Large", "It costs more than its limit can ever hold.")
}

// denied answers a request that is over its limit.
func denied(w http.ResponseWriter, _ *http.Request, d client.Decision) {
	detail := "This is over its limit. Waiting would not change that."
	if d.RetryAfter != client.Never {
		detail = "This is over its limit. There is room for it in " + strconv.FormatInt(seconds(d.RetryAfter), 10) + " s."
	}
	answerProblem(w, http.StatusTooManyRequests, typeQuota, "Quota Exceeded", detail)
}

// setHeaders sets the headers of ratelimitd's own answers. Without a decision by the service, there are none.
func setHeaders(h http.Header, d *client.Decision) {
	if len(d.Limits) == 0 {
		return
	}
	h.Set("X-RateLimit-Limit", strconv.FormatInt(d.Limit, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(seconds(d.ResetAfter), 10))
	var policy, limit strings.Builder
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Shadow {
			continue
		}
		if policy.Len() > 0 {
			policy.WriteString(", ")
			limit.WriteString(", ")
		}
		writeItem(&policy, l.Name, ";q=", l.Limit)
		if l.Algorithm == "concurrent" { // it has no window
			policy.WriteString(`;qu="concurrent-requests"`)
		} else {
			writeParameter(&policy, ";w=", seconds(l.Window))
		}
		writeItem(&limit, l.Name, ";r=", l.Remaining)
		if after, known := moreAfter(d, l); known {
			writeParameter(&limit, ";t=", seconds(after))
		}
	}
	h.Set("RateLimit-Policy", policy.String())
	h.Set("RateLimit", limit.String())
	if !d.Allowed && d.RetryAfter != client.Never {
		h.Set("Retry-After", strconv.FormatInt(max(1, seconds(d.RetryAfter)), 10))
	}
}

// maxFieldInteger is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxFieldInteger = 999_999_999_999_999

// moreAfter returns when l, of d, has more units, and false if no wait helps or that is later than Retry-After.
// ratelimitd's own answers have the same.
func moreAfter(d *client.Decision, l *client.LimitDecision) (after time.Duration, known bool) {
	after = l.ResetAfter
	if !l.Allowed {
		after = l.RetryAfter
	}
	return after, after != client.Never && (d.Allowed || d.RetryAfter == client.Never || after <= d.RetryAfter)
}

// writeItem writes one limit of a structured field, and its first parameter. Names of limits need no escapes.
func writeItem(b *strings.Builder, name, parameter string, value int64) {
	b.WriteString(`"` + name + `"`)
	writeParameter(b, parameter, value)
}

func writeParameter(b *strings.Builder, name string, value int64) {
	b.WriteString(name + strconv.FormatInt(min(value, maxFieldInteger), 10))
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
