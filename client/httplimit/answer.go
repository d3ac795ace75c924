package httplimit

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// Bodies of answers, as ratelimitd has them.
const (
	mediaProblem = "application/problem+json"
	quotaType    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedType  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	reduced      = `{"type":"` + reducedType + `","title":"Temporary Reduced Capacity","status":503,` +
		`"detail":"Nobody can tell whether this is within its limit. Try again shortly."}` + "\n"
)

// unavailable answers a request that nobody decided.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", mediaProblem)
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, reduced) // a client that is gone does not miss it
}

// refusesIdentifier reports whether err says that the identifier is not what the policy counts:
// not a phone number, for example.
func refusesIdentifier(err error) bool {
	p := (*client.Problem)(nil)
	return errors.Is(err, client.ErrInvalid) && errors.As(err, &p) && strings.HasSuffix(p.Field, "identifier")
}

// refused answers a request whose identifier is not what the policy counts. If it passed, nothing
// would limit it.
func refused(w http.ResponseWriter, err error) {
	p := (*client.Problem)(nil)
	_ = errors.As(err, &p) // refusesIdentifier has found it
	badRequest(w, p.Detail)
}

// badRequest answers a request that has no identifier to count it for.
func badRequest(w http.ResponseWriter, detail string) {
	body, _ := json.Marshal(map[string]any{"type": "about:blank", "title": "Bad Request", "status": http.StatusBadRequest, "detail": detail})
	w.Header().Set("Content-Type", mediaProblem)
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(append(body, '\n'))
}

// tooLarge answers a request that costs more than a limit can ever hold. If it passed, it would
// get around the limit by its size.
func tooLarge(w http.ResponseWriter) {
	w.Header().Set("Content-Type", mediaProblem)
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	_, _ = io.WriteString(w, `{"type":"about:blank","title":"Request Entity Too Large","status":413,`+
		`"detail":"It costs more than its limit can ever hold."}`+"\n")
}

// denied answers a request that is over its limit.
func denied(w http.ResponseWriter, _ *http.Request, d client.Decision) {
	detail := "Waiting would not change that."
	if d.RetryAfter != client.Never {
		detail = "There is room for it in " + strconv.FormatInt(seconds(d.RetryAfter), 10) + " s."
	}
	w.Header().Set("Content-Type", mediaProblem)
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"type":"`+quotaType+`","title":"Quota Exceeded","status":429,`+
		`"detail":"This is over its limit. `+detail+`"}`+"\n")
}

// setHeaders sets the headers of ratelimitd's own answers. A decision that nobody made has none.
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

// maxFieldInteger is the greatest Integer of a structured field (RFC 9651, section 3.3.1).
const maxFieldInteger = 999_999_999_999_999

// moreAfter returns after how long l, of d, has more units, and false where no wait helps or that
// is later than Retry-After. ratelimitd's own answers have the same.
func moreAfter(d *client.Decision, l *client.LimitDecision) (after time.Duration, known bool) {
	after = l.ResetAfter
	if !l.Allowed {
		after = l.RetryAfter
	}
	return after, after != client.Never && (d.Allowed || d.RetryAfter == client.Never || after <= d.RetryAfter)
}

// writeItem writes one limit of a structured field, and its first parameter. Names of limits have
// nothing that needs escapes.
func writeItem(b *strings.Builder, name, parameter string, value int64) {
	b.WriteString(`"` + name + `"`)
	writeParameter(b, parameter, value)
}

func writeParameter(b *strings.Builder, name string, value int64) {
	b.WriteString(name + strconv.FormatInt(min(value, maxFieldInteger), 10))
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
