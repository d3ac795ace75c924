package encode

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// HeaderFamilies is a set of families of headers about limits. The zero value means HeadersDefault.
type HeaderFamilies uint8

// The families of headers.
const (
	HeadersIETF        HeaderFamilies = 1 << iota // RateLimit-Policy, RateLimit, as in draft 10 of the IETF
	HeadersXRateLimit                             // X-RateLimit-Limit, -Remaining, -Reset
	HeadersXRateLimit2                            // X-Rate-Limit-Limit, -Remaining
	HeadersNone                                   // none of them; Retry-After stays
	HeadersIETF07                                 // as in draft 07: RateLimit-Policy, RateLimit: limit=, remaining=, reset=

	HeadersDefault = HeadersIETF | HeadersXRateLimit

	headersDrafts = HeadersIETF | HeadersIETF07 // they have the same names, so at most one can be set
)

// headerFamilies are the families by their names in settings.
var headerFamilies = []struct {
	name   string
	family HeaderFamilies
}{
	{"ietf", HeadersIETF},
	{"x-ratelimit", HeadersXRateLimit},
	{"x-rate-limit", HeadersXRateLimit2},
	{"none", HeadersNone},
	{"ietf-07", HeadersIETF07},
}

// ParseHeaders parses names of families separated by commas, such as "ietf,x-ratelimit". "none" must be alone, at most
// one IETF draft may be named, and an empty text is HeadersDefault. The error lists the known names.
func ParseHeaders(text string) (HeaderFamilies, error) {
	if strings.TrimSpace(text) == "" {
		return HeadersDefault, nil
	}
	families := HeaderFamilies(0)
	for name := range strings.SplitSeq(text, ",") {
		family, err := parseFamily(strings.TrimSpace(name))
		if err != nil {
			return 0, err
		}
		families |= family
	}
	if families&HeadersNone != 0 && families != HeadersNone {
		return 0, fmt.Errorf("%q: none stands alone", text)
	}
	if bits.OnesCount8(uint8(families&headersDrafts)) > 1 {
		return 0, fmt.Errorf("%q: the drafts have headers of the same names: choose one of them", text)
	}
	return families, nil
}

func parseFamily(name string) (HeaderFamilies, error) {
	names := make([]string, len(headerFamilies))
	for i, f := range headerFamilies {
		if f.name == name {
			return f.family, nil
		}
		names[i] = f.name
	}
	return 0, fmt.Errorf("%q is not a family of headers: use %s", name, strings.Join(names, ", "))
}

// String returns f as ParseHeaders reads it.
func (f HeaderFamilies) String() string {
	var names []string
	for _, known := range headerFamilies {
		if f.orDefault()&known.family != 0 {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ",")
}

func (f HeaderFamilies) orDefault() HeaderFamilies {
	if f == 0 {
		return HeadersDefault
	}
	return f
}

// SetHeaders sets the families' headers for d in h, and Retry-After for a denial that waiting can end.
func SetHeaders(h http.Header, d *count.Decision, families HeaderFamilies) {
	families = families.orDefault()
	var w headerWriter
	b := w.memory[:0]
	if families&HeadersXRateLimit != 0 {
		b = w.end("X-Ratelimit-Limit", strconv.AppendInt(b, d.TightestLimit().Limit, 10))
		b = w.end("X-Ratelimit-Remaining", strconv.AppendInt(b, d.Remaining, 10))
		b = w.end("X-Ratelimit-Reset", strconv.AppendInt(b, seconds(d.ResetAfter), 10))
	}
	if families&HeadersXRateLimit2 != 0 {
		b = w.end("X-Rate-Limit-Limit", strconv.AppendInt(b, d.TightestLimit().Limit, 10))
		b = w.end("X-Rate-Limit-Remaining", strconv.AppendInt(b, d.Remaining, 10))
	}
	b = w.draft(b, d, families)
	if !d.Allowed && d.RetryAfter != count.Never {
		b = w.end("Retry-After", strconv.AppendInt(b, max(1, seconds(d.RetryAfter)), 10))
	}
	w.set(h, b)
}

// maxHeaders is the maximum of headers that SetHeaders sets.
const maxHeaders = 8

// headerWriter collects the values of headers, so that they need one string and one slice.
type headerWriter struct {
	memory [512]byte
	names  [maxHeaders]string // in canonical form
	ends   [maxHeaders]int
	count  int
}

// end makes the bytes of b since the last call the value of the header name.
func (w *headerWriter) end(name string, b []byte) []byte {
	w.names[w.count], w.ends[w.count] = name, len(b)
	w.count++
	return b
}

func (w *headerWriter) set(h http.Header, b []byte) {
	text, values, start := string(b), make([]string, w.count), 0
	for i := range w.count {
		values[i] = text[start:w.ends[i]]
		h[w.names[i]] = values[i : i+1 : i+1]
		start = w.ends[i]
	}
}

// draft appends the headers of the IETF's draft that families has.
func (w *headerWriter) draft(b []byte, d *count.Decision, families HeaderFamilies) []byte {
	switch {
	case families&HeadersIETF != 0:
		b = w.end("Ratelimit-Policy", appendPolicyField(b, d.Limits()))
		b = w.end("Ratelimit", appendLimitField(b, d))
	case families&HeadersIETF07 != 0:
		b = w.end("Ratelimit-Policy", appendUnnamedPolicyField(b, d.Limits()))
		b = appendParameter(b, "limit=", d.TightestLimit().Limit)
		b = appendParameter(b, ", remaining=", d.Remaining)
		b = w.end("Ratelimit", appendParameter(b, ", reset=", seconds(resetOf(d))))
	}
	return b
}

// appendUnnamedPolicyField appends RateLimit-Policy as in drafts up to 07: the quota of each limit, and its window in
// seconds, rounded up.
func appendUnnamedPolicyField(b []byte, limits []count.LimitDecision) []byte {
	start := len(b)
	for i := range limits {
		if limits[i].Limit.Shadow {
			continue
		}
		if len(b) > start {
			b = append(b, ", "...)
		}
		b = appendParameter(b, "", limits[i].Limit.Limit)
		b = appendParameter(b, ";w=", seconds(limits[i].Limit.Window))
	}
	return b
}

// appendPolicyField appends RateLimit-Policy: an item for each limit, with its quota and its window in seconds, rounded
// up, or the draft's unit of concurrent requests. It leaves out shadows, which deny nothing.
func appendPolicyField(b []byte, limits []count.LimitDecision) []byte {
	start := len(b)
	for i := range limits {
		l := limits[i].Limit
		if l.Shadow {
			continue
		}
		b = appendItem(b, len(b) == start, l.Name)
		b = appendParameter(b, ";q=", l.Limit)
		if l.IsConcurrent() { // it has no window
			b = append(b, `;qu="concurrent-requests"`...)
			continue
		}
		b = appendParameter(b, ";w=", seconds(l.Window))
	}
	return b
}

// resetOf returns the time until d's tightest limit has more units, at the latest until it is unused.
func resetOf(d *count.Decision) time.Duration {
	if after, known := moreAfter(d, &d.Verdict); known {
		return after
	}
	return d.ResetAfter
}

// appendLimitField appends RateLimit: an item for each limit, with the remaining units and the seconds until there are
// more, rounded up.
func appendLimitField(b []byte, d *count.Decision) []byte {
	start, limits := len(b), d.Limits()
	for i := range limits {
		if limits[i].Limit.Shadow {
			continue
		}
		b = appendItem(b, len(b) == start, limits[i].Limit.Name)
		b = appendParameter(b, ";r=", limits[i].Remaining)
		if after, known := moreAfter(d, &limits[i].Verdict); known {
			b = appendParameter(b, ";t=", seconds(after))
		}
	}
	return b
}

// moreAfter returns the time until a limit of d with the verdict v has more units: until the same cost fits if v
// denies, else until the limit is unused. It returns false if waiting does not help, or if the time is longer than
// Retry-After, which the draft forbids.
func moreAfter(d *count.Decision, v *count.Verdict) (after time.Duration, known bool) {
	after = v.ResetAfter
	if !v.Allowed {
		after = v.RetryAfter
	}
	return after, after != count.Never && (d.Allowed || d.RetryAfter == count.Never || after <= d.RetryAfter)
}

// appendItem appends the name of an item of a list as a structured field's String
// (RFC 9651, section 3.3.3). Names of limits are plain ASCII; a byte that a
// String cannot hold becomes a question mark.
func appendItem(b []byte, first bool, name string) []byte {
	if !first {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// maxFieldInteger is the greatest Integer of a structured field (RFC 9651, section 3.3.1), one less than the greatest
// limit.
const maxFieldInteger = 999_999_999_999_999

func appendParameter(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), min(n, maxFieldInteger), 10)
}
