// Package encode writes answers: decisions in JSON and in headers, and problems of RFC 9457. It has the table of the
// statuses of errors.
//
// It knows requests only by their errors, and nothing about callers and routes.
package encode

import (
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Decided is the answer of check, record and take.
type Decided struct {
	limiter.Answer
	Listed   bool // the body had "demands"
	Families HeaderFamilies
}

// replayedHeader marks an answer that repeats an earlier one.
const replayedHeader = "Idempotent-Replayed"

// replayed is its value. It is shared and must not be changed.
var replayed = []string{"true"}

// Render writes the decision; a denial is a problem with the decision's members.
func (a *Decided) Render(h http.Header, b []byte) (status int, body []byte) {
	SetHeaders(h, &a.Decision, a.Families)
	if a.Replayed {
		h[replayedHeader] = replayed
	}
	status, h["Content-Type"] = http.StatusOK, ContentTypeJSON
	if !a.Allowed {
		status, h["Content-Type"] = http.StatusTooManyRequests, contentTypeProblem
	}
	b = a.AppendMembers(append(b, '{'))
	return status, append(b, "}\n"...)
}

// AppendMembers appends the members of a, without braces.
func (a *Decided) AppendMembers(b []byte) []byte {
	d := &a.Decision
	if !d.Allowed {
		b = append(appendDenied(b, d), ',')
	}
	b = appendDecision(b, d, a.inShadow())
	if len(a.Settled) == 1 {
		b = appendSettled(b, a.Settled[0])
	}
	if a.Receipt != "" {
		b = appendPlain(b, `,"receipt":"`, a.Receipt)
	}
	if a.Release != "" {
		b = appendPlain(b, `,"release":"`, a.Release)
	}
	if a.Reservation != "" {
		b = appendPlain(b, `,"reservation":"`, a.Reservation)
	}
	if a.Listed {
		b = a.appendDemands(b)
	}
	return b
}

// inShadow reports whether the verdict may differ from the answer, because a demand is decided in mode shadow.
func (a *Decided) inShadow() bool {
	for i := range a.Demands {
		if a.Demands[i].Policy.Mode == policy.ModeShadow {
			return true
		}
	}
	return a.Policy.Mode == policy.ModeShadow
}

// appendDemands appends one decision for each demand.
func (a *Decided) appendDemands(b []byte) []byte {
	decisions := a.Demands
	if decisions == nil { // there was one
		decisions = []count.Decision{a.Decision}
	}
	b = append(b, `,"demands":[`...)
	for i := range decisions {
		d := &decisions[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDecision(append(b, '{'), d, d.Policy.Mode == policy.ModeShadow)
		if a.Settled != nil {
			b = appendSettled(b, a.Settled[i])
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendSettled appends the members of s.
func appendSettled(b []byte, s limiter.Settled) []byte {
	return AppendInt(AppendInt(b, `,"settled":`, s.Cost), `,"over":`, s.Over)
}

// deniedMembers are the first members of every denial.
var deniedMembers = (&Problem{Status: http.StatusTooManyRequests, Type: typeQuotaExceeded}).appendKind(nil)

// appendDenied appends the members of the problem of a denial, without braces.
func appendDenied(b []byte, d *count.Decision) []byte {
	b = append(append(b, deniedMembers...), `,"detail":"`...)
	return appendViolated(append(appendDenial(b, d, appendExactly), '"'), d)
}

// Denial returns a sentence on the reason of a denial and the wait that helps, if any.
func Denial(d *count.Decision) string {
	return string(appendDenial(nil, d, func(b []byte, wait time.Duration) []byte {
		return append(b, ForPeople(Milliseconds(wait))...)
	}))
}

// appendExactly appends a wait in milliseconds.
func appendExactly(b []byte, wait time.Duration) []byte {
	return append(AppendInt(b, "", Milliseconds(wait)), " ms"...)
}

// appendDenial appends the text of a denial, which needs no escapes in a JSON string. appendWait appends waits.
func appendDenial(b []byte, d *count.Decision, appendWait func([]byte, time.Duration) []byte) []byte {
	switch {
	case d.Override == policy.OverrideBlock:
		b = append(append(b, "An override blocks it under policy "...), d.Policy.Name...)
		if d.RetryAfter == count.Never {
			return append(b, ", without end."...)
		}
		return append(appendWait(append(b, ", for another "...), d.RetryAfter), '.')
	case d.Blocked:
		b = append(append(b, "Policy "...), d.Policy.Name...)
		return append(appendWait(append(b, " blocks after a denial, for another "...), d.RetryAfter), '.')
	case d.Reason != "":
		return append(append(append(append(b, "Policy "...), d.Policy.Name...), refusals[d.Reason]...), '.')
	}
	b = append(append(b, "The limit "...), d.TightestLimit().Name...)
	b = append(append(b, " of policy "...), d.Policy.Name...)
	if d.RetryAfter == count.Never {
		return append(b, " has no room for this cost, and waiting would not change that."...)
	}
	b = append(appendWait(append(b, " has no room for this cost before "...), d.RetryAfter), " have passed"...)
	if d.TightestLimit().IsConcurrent() {
		b = append(b, ", unless a request ends sooner"...)
	}
	return append(b, '.')
}

// refusals are the texts of denials by rules about numbers.
var refusals = map[policy.Reason]string{
	policy.ReasonCountry:    " admits no numbers of this country, by countries",
	policy.ReasonNumberType: " admits no numbers of this type, by number_types",
}

// appendViolated appends the names of the limits that deny, as in RateLimit-Policy.
func appendViolated(b []byte, d *count.Decision) []byte {
	b = append(b, `,"violated-policies":[`...)
	first := true
	for i := range d.Limits() {
		if d.Limits()[i].Allowed || d.Limits()[i].Limit.Shadow {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = appendPlain(b, `"`, d.Limits()[i].Limit.Name), false
	}
	return append(b, ']')
}

// appendDecision appends the members of d, without braces, with would_allow if wouldAllow is set.
func appendDecision(b []byte, d *count.Decision, wouldAllow bool) []byte {
	b = appendBool(b, `"allowed":`, d.Allowed)
	b = appendPlain(b, `,"policy":"`, d.Policy.Name)
	b = AppendInt(b, `,"limit":`, d.TightestLimit().Limit)
	b = AppendInt(b, `,"remaining":`, d.Remaining)
	b = AppendInt(b, `,"used":`, d.Used)
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
	if d.Reason != "" {
		b = appendPlain(b, `,"reason":"`, string(d.Reason))
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

func appendLimit(b []byte, l *count.LimitDecision) []byte {
	b = appendPlain(b, `{"name":"`, l.Limit.Name)
	b = appendPlain(b, `,"algorithm":"`, l.Limit.Algorithm)
	b = AppendInt(b, `,"limit":`, l.Limit.Limit)
	b = AppendInt(b, `,"window_ms":`, Milliseconds(l.Limit.Window))
	b = appendBool(b, `,"allowed":`, l.Allowed || l.Limit.Shadow)
	b = AppendInt(b, `,"used":`, l.Used)
	b = AppendInt(b, `,"remaining":`, l.Remaining)
	b = appendWaits(b, &l.Verdict)
	if l.Limit.Shadow {
		b = appendBool(b, `,"would_deny":`, l.WouldDeny())
	}
	return append(b, '}')
}

func appendWaits(b []byte, v *count.Verdict) []byte {
	b = AppendInt(b, `,"reset_after_ms":`, Milliseconds(v.ResetAfter))
	if v.RetryAfter == count.Never {
		return append(b, `,"retry_after_ms":null`...)
	}
	return AppendInt(b, `,"retry_after_ms":`, Milliseconds(v.RetryAfter))
}
