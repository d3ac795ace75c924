package api

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Values of Content-Type, ready for a header map. They are shared: not to be
// changed.
var (
	contentTypeJSON    = []string{"application/json"}
	contentTypeProblem = []string{"application/problem+json"}
	contentTypeYAML    = []string{"application/yaml"} // RFC 9512
)

// decided is the answer of check, record and take.
type decided struct {
	limiter.Answer
	listed   bool // the body had "demands"
	families HeaderFamilies
}

// replayed is the value of replayedHeader. It is shared: not to be changed.
var replayed = []string{"true"}

// render writes the decision; a denial is a problem with the decision's members.
func (a *decided) render(h http.Header, b []byte) (status int, body []byte) {
	setHeaders(h, &a.Decision, a.families)
	if a.Replayed {
		h[replayedHeader] = replayed
	}
	status, h["Content-Type"] = http.StatusOK, contentTypeJSON
	if !a.Allowed {
		status, h["Content-Type"] = http.StatusTooManyRequests, contentTypeProblem
	}
	b = a.appendMembers(append(b, '{'))
	return status, append(b, "}\n"...)
}

// appendMembers appends the members of a, without braces.
func (a *decided) appendMembers(b []byte) []byte {
	d := &a.Decision
	if !d.Allowed {
		b = append(appendDenied(b, d), ',')
	}
	b = appendDecision(b, d, a.inShadow())
	if a.Receipt != "" {
		b = appendPlain(b, `,"receipt":"`, a.Receipt)
	}
	if a.Reservation != "" {
		b = appendPlain(b, `,"reservation":"`, a.Reservation)
	}
	if a.listed {
		b = a.appendDemands(b)
	}
	return b
}

// inShadow reports whether the verdict may differ from the answer: a demand is
// decided in mode shadow.
func (a *decided) inShadow() bool {
	for i := range a.Demands {
		if a.Demands[i].Policy.Mode == limiter.ModeShadow {
			return true
		}
	}
	return a.Policy.Mode == limiter.ModeShadow
}

// appendDemands appends one decision for each demand.
func (a *decided) appendDemands(b []byte) []byte {
	decisions := a.Demands
	if decisions == nil { // there was one
		decisions = []limiter.Decision{a.Decision}
	}
	b = append(b, `,"demands":[`...)
	for i := range decisions {
		d := &decisions[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendDecision(append(b, '{'), d, d.Policy.Mode == limiter.ModeShadow), '}')
	}
	return append(b, ']')
}

// deniedMembers are what the members of every denial begin with.
var deniedMembers = (&problem{status: http.StatusTooManyRequests, typ: typeQuotaExceeded}).appendKind(nil)

// appendDenied appends the members of the problem that a denial is, without braces.
func appendDenied(b []byte, d *limiter.Decision) []byte {
	b = append(append(b, deniedMembers...), `,"detail":"`...)
	return appendViolated(append(appendDenial(b, d, appendExactly), '"'), d)
}

// denial says what denies and whether waiting helps, with waits for people.
func denial(d *limiter.Decision) string {
	return string(appendDenial(nil, d, func(b []byte, wait time.Duration) []byte {
		return append(b, ForPeople(milliseconds(wait))...)
	}))
}

// appendExactly appends a wait in milliseconds.
func appendExactly(b []byte, wait time.Duration) []byte {
	return append(appendInt(b, "", milliseconds(wait)), " ms"...)
}

// appendDenial appends the text of a denial, which a JSON string has as it is: names are.
// Waits are appended by appendWait.
func appendDenial(b []byte, d *limiter.Decision, appendWait func([]byte, time.Duration) []byte) []byte {
	switch {
	case d.Override == limiter.OverrideBlock:
		b = append(append(b, "An override blocks it under policy "...), d.Policy.Name...)
		return append(appendWait(append(b, ", for another "...), d.RetryAfter), '.')
	case d.Blocked:
		b = append(append(b, "Policy "...), d.Policy.Name...)
		return append(appendWait(append(b, " blocks after a denial, for another "...), d.RetryAfter), '.')
	}
	b = append(append(b, "The limit "...), d.TightestLimit().Name...)
	b = append(append(b, " of policy "...), d.Policy.Name...)
	if d.RetryAfter == limiter.Never {
		return append(b, " has no room for this cost, and waiting would not change that."...)
	}
	return append(appendWait(append(b, " has no room for this cost before "...), d.RetryAfter), " have passed."...)
}

// appendViolated appends the names of the limits that deny, as RateLimit-Policy
// has them.
func appendViolated(b []byte, d *limiter.Decision) []byte {
	b = append(b, `,"violated-policies":[`...)
	first := true
	for i := range d.Limits() {
		if d.Limits()[i].Allowed {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = appendPlain(b, `"`, d.Limits()[i].Limit.Name), false
	}
	return append(b, ']')
}

// appendDecision appends the members of d, without braces: also whether it would
// allow, if that is asked for.
func appendDecision(b []byte, d *limiter.Decision, wouldAllow bool) []byte {
	b = appendBool(b, `"allowed":`, d.Allowed)
	b = appendPlain(b, `,"policy":"`, d.Policy.Name)
	b = appendInt(b, `,"limit":`, d.TightestLimit().Limit)
	b = appendInt(b, `,"remaining":`, d.Remaining)
	b = appendInt(b, `,"used":`, d.Used)
	waits := d.Verdict
	if d.Allowed { // in mode shadow the limits' own waits remain
		waits.RetryAfter = 0
	}
	b = appendWaits(b, &waits)
	b = append(b, `,"limits":[`...)
	for i := range d.Limits() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLimit(b, &d.Limits()[i])
	}
	b = appendPlain(b, `],"mode":"`, string(d.Policy.Mode))
	if wouldAllow {
		b = appendBool(b, `,"would_allow":`, d.WouldAllow)
	}
	if d.Blocked {
		b = append(b, `,"blocked":true`...)
	}
	if d.Override != "" {
		b = appendMember(b, `,"override":`, string(d.Override))
	}
	b = appendBool(b, `,"degraded":`, d.Degraded)
	if d.Degraded {
		b = appendMember(b, `,"recorded":`, string(d.Recorded))
	}
	return b
}

func appendLimit(b []byte, l *limiter.LimitDecision) []byte {
	b = appendPlain(b, `{"name":"`, l.Limit.Name)
	b = appendPlain(b, `,"algorithm":"`, l.Limit.Algorithm)
	b = appendInt(b, `,"limit":`, l.Limit.Limit)
	b = appendInt(b, `,"window_ms":`, milliseconds(l.Limit.Window))
	b = appendBool(b, `,"allowed":`, l.Allowed)
	b = appendInt(b, `,"used":`, l.Used)
	b = appendInt(b, `,"remaining":`, l.Remaining)
	return append(appendWaits(b, &l.Verdict), '}')
}

func appendWaits(b []byte, v *limiter.Verdict) []byte {
	b = appendInt(b, `,"reset_after_ms":`, milliseconds(v.ResetAfter))
	if v.RetryAfter == limiter.Never {
		return append(b, `,"retry_after_ms":null`...)
	}
	return appendInt(b, `,"retry_after_ms":`, milliseconds(v.RetryAfter))
}

// milliseconds returns d in whole milliseconds, rounded up: nobody is told to
// come back too early.
func milliseconds(d time.Duration) int64 { return ceil(d, time.Millisecond) }

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return ceil(d, time.Second) }

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

func appendMember(b []byte, name, text string) []byte { return appendString(append(b, name...), text) }

// appendPlain appends a text of letters, digits, '.', '-' and '_', as the engine's tokens and all
// names of policies and limits are, after what stands before it.
func appendPlain(b []byte, before, text string) []byte {
	return append(append(append(b, before...), text...), '"')
}

func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// appendString appends text as a JSON string. Nearly every text is plain ASCII;
// encoding/json takes the rest.
func appendString(b []byte, text string) []byte {
	if !isPlain(text) {
		quoted, _ := json.Marshal(text) // a string always marshals
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), text...), '"')
}

// isPlain reports whether text is ASCII that a JSON string has as it is. It looks at eight
// bytes at a time: the lowest that is not has its highest bit set, or one of the subtractions
// sets it; where all are, none borrows from the next.
func isPlain(text string) bool {
	const each, highest = 0x0101010101010101, 0x8080808080808080
	rest := text
	for ; len(rest) >= 8; rest = rest[8:] {
		eight := binary.LittleEndian.Uint64([]byte(rest[:8]))
		low, quote, slash := eight-each*' ', eight^each*'"'-each, eight^each*'\\'-each
		if (eight|low|quote|slash)&highest != 0 {
			return false
		}
	}
	for i := range len(rest) {
		if c := rest[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// document is an answer of 200 that encoding/json writes.
type document struct{ content any }

// render writes the document.
func (a document) render(h http.Header, b []byte) (status int, body []byte) {
	content, err := json.Marshal(a.content)
	if err != nil { // of a type that does not marshal: a mistake in this package
		return problemOf(err).render(h, b)
	}
	h["Content-Type"] = contentTypeJSON
	return http.StatusOK, append(append(b, content...), '\n')
}

// nothing is the answer of 204.
type nothing struct{}

// render writes no body.
func (nothing) render(_ http.Header, b []byte) (status int, body []byte) {
	return http.StatusNoContent, b
}
