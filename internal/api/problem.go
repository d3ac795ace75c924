package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Problem types. The two of rate limiting are from the IETF draft
// "RateLimit header fields for HTTP", section "Problem Types"; all others are
// about:blank, whose title is the status (RFC 9457, section 4.2.1), but for one of
// this service's own.
const (
	typeBlank           = "about:blank"
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeKeyReused       = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused"
)

// statusClientGone is what the log and the metrics show for a client that hung up
// before its answer; nginx calls 499 so.
const statusClientGone = 499

// retryUnavailable is the Retry-After of a 503 in seconds: the shortest there is,
// since a store that comes back is used again at its first good answer.
const retryUnavailable = 1

// Errors that only HTTP has. A requestError wraps one of them with more to say.
var (
	errNoRoute  = errors.New("no such route")
	errMethod   = errors.New("method not allowed")
	errBody     = errors.New("malformed body")
	errTooLarge = errors.New("body too large")
	errNotJSON  = errors.New("not JSON")
	errTooSlow  = errors.New("body not received in time")
	errNotReady = errors.New("not ready")

	errNoOverride = errors.New("no override")
)

// problemKinds maps every error to its status, the first that matches. The
// detail is the default: a requestError or a limiter.FieldError brings its own.
var problemKinds = []problemKind{
	{limiter.ErrInvalid, http.StatusBadRequest, typeBlank, "", "The request cannot be served as it stands."},
	{auth.ErrUnauthenticated, http.StatusUnauthorized, typeBlank, "Authorization",
		"Say who asks, by a token that this service knows: Authorization: Bearer TOKEN."},
	{auth.ErrForbidden, http.StatusForbidden, typeBlank, "", "It is known who asks, and they are not permitted to ask for this."},
	{errUntrusted, http.StatusForbidden, typeBlank, "",
		"Gateways that are trusted may ask here, and this address is of none of them: see --trusted-proxies."},
	{errHost, http.StatusForbidden, typeBlank, "Host",
		"Nobody is asked who they are here, so requests must be sent to an address, to localhost or to a name of --allowed-hosts."},
	{errBody, http.StatusBadRequest, typeBlank, "", "The body is malformed."},
	{limiter.ErrUnknownPolicy, http.StatusNotFound, typeBlank, "policy",
		"No policy of that name is in force; GET /v1/policies lists those that are."},
	{errNoOverride, http.StatusNotFound, typeBlank, "", "There is no override of this identifier under this policy."},
	{errNoRoute, http.StatusNotFound, typeBlank, "", "There is no such route; GET /openapi.yaml lists those there are."},
	{errMethod, http.StatusMethodNotAllowed, typeBlank, "", "This route takes other methods, which Allow lists."},
	{errTooSlow, http.StatusRequestTimeout, typeBlank, "", "The body did not arrive in time."},
	{errTooLarge, http.StatusRequestEntityTooLarge, typeBlank, "", "The body is longer than this route takes."},
	{errNotJSON, http.StatusUnsupportedMediaType, typeBlank, "Content-Type", "Send JSON in UTF-8, with Content-Type: application/json."},
	{limiter.ErrCostTooLarge, http.StatusUnprocessableEntity, typeBlank, "cost",
		"The cost is greater than a limit of this policy can ever hold."},
	{limiter.ErrReused, http.StatusUnprocessableEntity, typeKeyReused, "idempotency_key",
		"The key was given to another request before: give every request a key of its own, and only its repetitions the same."},
	{limiter.ErrNoReceipt, http.StatusNotFound, typeBlank, "receipt",
		"There is nothing to refund: the receipt is none of this service, was refunded before, or its window is over."},
	{limiter.ErrOverloaded, http.StatusServiceUnavailable, typeReducedCapacity, "", "The server is at one of its bounds. Try again shortly."},
	{limiter.ErrUnavailable, http.StatusServiceUnavailable, typeReducedCapacity, "",
		"The store does not answer, and the policy denies on that. Try again shortly."},
	{errNotReady, http.StatusServiceUnavailable, typeReducedCapacity, "", "Not ready to decide; the log says why."},
}

// problemKind is a row of problemKinds.
type problemKind struct {
	err    error
	status int
	typ    string
	field  string // "": none, unless the error names one
	detail string
}

// problem is an answer of RFC 9457.
type problem struct {
	kind     error // the row of problemKinds; nil: none
	status   int
	typ      string
	detail   string
	field    string // the member, header or field that is wrong; "": none
	recorded limiter.Recorded

	challenge string // of the header WWW-Authenticate; "": none
}

// problemOf returns the problem that err is: a 500 that gives nothing away when
// the table has no row for it.
func problemOf(err error) *problem {
	p := &problem{status: http.StatusInternalServerError, typ: typeBlank, detail: "The server failed; its log says how."}
	for _, k := range problemKinds {
		if errors.Is(err, k.err) {
			p = &problem{kind: k.err, status: k.status, typ: k.typ, field: k.field, detail: k.detail}
			break
		}
	}
	if field := (*limiter.FieldError)(nil); errors.As(err, &field) {
		p.field, p.detail = field.Field, field.Detail
	}
	if request := (*requestError)(nil); errors.As(err, &request) {
		p.field, p.detail = request.field, request.detail
	}
	p.challenge = challengeOf(err)
	if call := (*callError)(nil); errors.As(err, &call) {
		p.field = call.field(p.field)
		if p.status >= http.StatusInternalServerError {
			p.recorded = call.recorded
		}
	}
	return p
}

// title is the text of the status, as about:blank asks, or that of the draft.
func (p *problem) title() string {
	switch {
	case p.typ == typeQuotaExceeded:
		return "Quota Exceeded"
	case p.typ == typeReducedCapacity:
		return "Temporary Reduced Capacity"
	case p.typ == typeKeyReused:
		return "Idempotency Key Reused"
	case p.status == statusClientGone:
		return "Client Closed Request"
	}
	return http.StatusText(p.status)
}

// render writes the problem.
func (p *problem) render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = contentTypeProblem
	if p.status == http.StatusServiceUnavailable {
		h["Retry-After"] = []string{itoa(retryUnavailable)}
	}
	if p.challenge != "" {
		h.Set("WWW-Authenticate", p.challenge)
	}
	b = appendProblem(append(b, '{'), p)
	return p.status, append(b, "}\n"...)
}

// appendProblem appends the members of p, without braces.
func appendProblem(b []byte, p *problem) []byte {
	b = appendMember(p.appendKind(b), `,"detail":`, p.detail)
	if p.field != "" {
		b = appendMember(b, `,"field":`, p.field)
	}
	if p.recorded != "" {
		b = appendMember(b, `,"recorded":`, string(p.recorded))
		b = append(b, `,"degraded":true`...) // the store did not decide
	}
	return b
}

// appendKind appends the members that say what kind of problem p is.
func (p *problem) appendKind(b []byte) []byte {
	b = appendMember(b, `"type":`, p.typ)
	b = appendMember(b, `,"title":`, p.title())
	return appendInt(b, `,"status":`, int64(p.status))
}

// requestError is an error of what was sent, with a sentence for who sent it. It
// quotes member names at most, never values.
type requestError struct {
	kind   error
	field  string
	detail string
}

// Error returns the field and the detail.
func (e *requestError) Error() string { return strings.TrimPrefix(e.field+": "+e.detail, ": ") }

// Unwrap returns the kind of the error, for the table.
func (e *requestError) Unwrap() error { return e.kind }
