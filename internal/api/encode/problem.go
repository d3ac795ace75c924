package encode

import (
	"errors"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
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

// StatusClientGone is the status in the log and the metrics for a client that hung up before its answer, as in nginx.
const StatusClientGone = 499

// RetryUnavailable is the Retry-After of a 503 in seconds, the shortest one, since a store that recovers is used again
// at once.
const RetryUnavailable = 1

// Errors that only HTTP has, beside those of package decode.
var (
	ErrNoRoute    = errors.New("no such route")
	ErrMethod     = errors.New("method not allowed")
	ErrNotReady   = errors.New("not ready")
	ErrNoOverride = errors.New("no override")
	ErrNotLatest  = errors.New("another version of the policies is the latest")
	ErrNoIfMatch  = errors.New("no If-Match")
	ErrNoVersion  = errors.New("no such version of the policies")
	ErrFromFile   = errors.New("the policies are those of a file")
	ErrUntrusted  = errors.New("not of a trusted proxy")                           // about the sender's address, not its caller
	ErrHost       = errors.New("sent to a host that is not among --allowed-hosts") // about the host name, likewise
	ErrOtherSite  = errors.New("sent by a page of another site")                   // likewise
)

// problemKinds maps every error to its status; the first row that matches applies. The detail is the default: a
// decode.Error or a limiter.FieldError has its own.
var problemKinds = []problemKind{
	{limiter.ErrInvalid, http.StatusBadRequest, typeBlank, "", "The request cannot be served as it stands."},
	{auth.ErrUnauthenticated, http.StatusUnauthorized, typeBlank, "Authorization",
		"Send a token that this service knows: Authorization: Bearer TOKEN."},
	{auth.ErrForbidden, http.StatusForbidden, typeBlank, "", "The caller is not permitted to ask for this."},
	{ErrUntrusted, http.StatusForbidden, typeBlank, "",
		"Only trusted gateways may call this route, and this address is not trusted: see --trusted-proxies."},
	{ErrHost, http.StatusForbidden, typeBlank, "Host",
		"There is no authentication here, so requests must be sent to an address, to localhost or to a name of --allowed-hosts."},
	{ErrOtherSite, http.StatusForbidden, typeBlank, "Origin",
		"A browser sent this for a page of another site, which must not act for the user of the browser."},
	{decode.ErrBody, http.StatusBadRequest, typeBlank, "", "The body is malformed."},
	{limiter.ErrUnknownPolicy, http.StatusNotFound, typeBlank, "policy",
		"No policy of that name is in force; GET /v1/policies lists those that are."},
	{ErrNoOverride, http.StatusNotFound, typeBlank, "", "There is no such override under this policy."},
	{ErrNoVersion, http.StatusNotFound, typeBlank, "version",
		"The store keeps no such version; GET /v1/policy-versions lists those that it keeps."},
	{ErrFromFile, http.StatusConflict, typeBlank, "",
		"This server was given --policies: change that file, or start the server without to have those in the store."},
	{ErrNotLatest, http.StatusPreconditionFailed, typeBlank, "If-Match",
		"Another version is the latest now: look at what changed, and send yours with the ETag of that."},
	{ErrNoIfMatch, http.StatusPreconditionRequired, typeBlank, "If-Match",
		"Say which version this replaces, by the ETag of GET /v1/policies; * replaces any."},
	{ErrNoRoute, http.StatusNotFound, typeBlank, "", "There is no such route; GET /openapi.yaml lists all routes."},
	{ErrMethod, http.StatusMethodNotAllowed, typeBlank, "", "This route takes other methods, which Allow lists."},
	{decode.ErrTooSlow, http.StatusRequestTimeout, typeBlank, "", "The body did not arrive in time."},
	{decode.ErrTooLarge, http.StatusRequestEntityTooLarge, typeBlank, "", "The body is longer than this route takes."},
	{decode.ErrNotJSON, http.StatusUnsupportedMediaType, typeBlank, "Content-Type",
		"Send JSON in UTF-8, with Content-Type: application/json."},
	{limiter.ErrCostTooLarge, http.StatusUnprocessableEntity, typeBlank, "cost",
		"The cost is greater than a limit of this policy can ever hold."},
	{limiter.ErrReused, http.StatusUnprocessableEntity, typeKeyReused, "idempotency_key",
		"The key was given to another request before: give every request a key of its own, and only its repetitions the same."},
	{limiter.ErrNoReceipt, http.StatusNotFound, typeBlank, "receipt",
		"There is nothing to refund: the receipt is not one of this service, was refunded or confirmed before, or its window is over; " +
			"or the reservation was settled or is over."},
	{store.ErrOverloaded, http.StatusServiceUnavailable, typeReducedCapacity, "", "The server is at one of its bounds. Try again shortly."},
	{store.ErrUnavailable, http.StatusServiceUnavailable, typeReducedCapacity, "",
		"The store does not answer, and the policy's on_store_error says deny. Try again shortly."},
	{ErrNotReady, http.StatusServiceUnavailable, typeReducedCapacity, "", "Not ready to decide; the log says why."},
}

// problemKind is a row of problemKinds.
type problemKind struct {
	err    error
	status int
	typ    string
	field  string // "": none, unless the error names one
	detail string
}

// Problem is an answer of RFC 9457.
type Problem struct {
	Kind     error // the row of the table; nil: none
	Status   int
	Type     string
	Detail   string
	Field    string // the wrong member, header or field; empty: none
	Recorded count.Recorded

	Challenge string // value of the header WWW-Authenticate; empty: none
}

// ProblemOf returns the problem for err, a 500 without details if the table has no row for it.
func ProblemOf(err error) *Problem {
	p := &Problem{Status: http.StatusInternalServerError, Type: typeBlank, Detail: "The server failed; its log says how."}
	for _, k := range problemKinds {
		if errors.Is(err, k.err) {
			p = &Problem{Kind: k.err, Status: k.status, Type: k.typ, Field: k.field, Detail: k.detail}
			break
		}
	}
	if receipt := (*limiter.ReceiptError)(nil); errors.As(err, &receipt) {
		p.Detail = "Nothing is confirmed by this receipt: " + receipt.Why + "."
	}
	if field := (*limiter.FieldError)(nil); errors.As(err, &field) {
		p.Field, p.Detail = field.Field, field.Detail
	}
	if request := (*decode.Error)(nil); errors.As(err, &request) {
		p.Field, p.Detail = request.Field, request.Detail
	}
	if call := (*decode.CallError)(nil); errors.As(err, &call) {
		p.Field = call.Field(p.Field)
		if p.Status >= http.StatusInternalServerError {
			p.Recorded = call.Recorded
		}
	}
	return p
}

// Title returns the text of the status, as about:blank demands, or the title in the draft.
func (p *Problem) Title() string {
	switch {
	case p.Type == typeQuotaExceeded:
		return "Quota Exceeded"
	case p.Type == typeReducedCapacity:
		return "Temporary Reduced Capacity"
	case p.Type == typeKeyReused:
		return "Idempotency Key Reused"
	case p.Status == StatusClientGone:
		return "Client Closed Request"
	}
	return http.StatusText(p.Status)
}

// Render writes the problem.
func (p *Problem) Render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = contentTypeProblem
	if p.Status == http.StatusServiceUnavailable {
		h["Retry-After"] = []string{itoa(RetryUnavailable)}
	}
	if p.Challenge != "" {
		h.Set("WWW-Authenticate", p.Challenge)
	}
	b = p.AppendMembers(append(b, '{'))
	return p.Status, append(b, "}\n"...)
}

// AppendMembers appends the members of p, without braces.
func (p *Problem) AppendMembers(b []byte) []byte {
	b = appendMember(p.appendKind(b), `,"detail":`, p.Detail)
	if p.Field != "" {
		b = appendMember(b, `,"field":`, p.Field)
	}
	if p.Recorded != "" {
		b = appendMember(b, `,"recorded":`, string(p.Recorded))
		b = append(b, `,"degraded":true`...) // the store did not decide
	}
	return b
}

// appendKind appends the members type, title and status.
func (p *Problem) appendKind(b []byte) []byte {
	b = appendMember(b, `"type":`, p.Type)
	b = appendMember(b, `,"title":`, p.Title())
	return AppendInt(b, `,"status":`, int64(p.Status))
}
