package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/handshake"
)

// What errors are, for errors.Is.
var (
	ErrUnavailable   = errors.New("ratelimitd does not decide")          // it cannot be reached, is late or broken, or its store is away
	ErrInvalid       = errors.New("the call is wrong")                   // as it stands it will never be decided
	ErrUnknownPolicy = errors.New("no policy of that name is in force")  // and the call is wrong
	ErrCostTooLarge  = errors.New("the cost is more than a limit holds") // and the call is wrong
	ErrKeyReused     = errors.New("the idempotency key was another's")   // and the call is wrong
	ErrNoReceipt     = errors.New("there is nothing to refund")
	ErrClosed        = errors.New("the client is closed")
)

// CallError is every error of a call: what became of its units, and why there is no decision.
// It wraps a *Problem where the service gave a reason.
type CallError struct {
	Op       string   // check, record, take, refund or reset
	Recorded Recorded // whether the units count; of a reset, whether it took effect
	Err      error
}

// Error says what failed and, where that is not plain, that it may count.
func (e *CallError) Error() string {
	text := "ratelimitd: " + e.Op + ": " + e.Err.Error()
	if e.Recorded == RecordedUnknown {
		text += " (whether it counts is unknown)"
	}
	return text
}

// Unwrap returns the reason.
func (e *CallError) Unwrap() error { return e.Err }

// RecordedOf returns what err says of the units of its call: empty where it is no error of a
// call.
func RecordedOf(err error) Recorded {
	if call := (*CallError)(nil); errors.As(err, &call) {
		return call.Recorded
	}
	return ""
}

// Problem is an answer that is no decision, as RFC 9457 has it.
type Problem struct {
	Type       string // a URI, or about:blank
	Title      string
	Status     int
	Field      string // the member that is wrong, such as cost or demands[1].policy; empty: none
	Detail     string
	Recorded   Recorded      // whether the units count; empty: they don't
	RetryAfter time.Duration // when to try again; 0: the service did not say
}

// typeKeyReused is the type of a 422 for a key that was given to another request.
const typeKeyReused = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused"

// Error returns the status, the field and the detail: the service repeats no identifier in
// them.
func (p *Problem) Error() string {
	text := strings.TrimPrefix(p.Field+": "+p.Detail, ": ")
	if p.Status == 0 {
		return text
	}
	return "status " + strconv.Itoa(p.Status) + ": " + text
}

// Is reports whether p is of the kind that target stands for.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return p.Status >= http.StatusInternalServerError
	case ErrInvalid:
		return p.Status < http.StatusInternalServerError && !p.Is(ErrNoReceipt)
	case ErrUnknownPolicy:
		return p.Status == http.StatusNotFound && strings.HasSuffix(p.Field, "policy")
	case ErrNoReceipt:
		return p.Status == http.StatusNotFound && p.Field == "receipt"
	case ErrKeyReused:
		return p.Status == http.StatusUnprocessableEntity && p.Type == typeKeyReused
	case ErrCostTooLarge:
		return p.Status == http.StatusUnprocessableEntity && strings.HasSuffix(p.Field, "cost")
	}
	return false
}

// refuse is the problem of a call that is not sent.
func refuse(field, detail string) *Problem { return &Problem{Field: field, Detail: detail} }

// foreignError is an answer that ratelimitd does not give: a proxy does, or it is none.
type foreignError struct {
	status     int
	why        string
	retryAfter time.Duration
}

// Error names the status; the answer itself is not repeated.
func (e *foreignError) Error() string {
	return "the answer is not ratelimitd's: status " + strconv.Itoa(e.status) + ", " + e.why
}

// Is reports that nobody decided.
func (e *foreignError) Is(target error) bool { return target == ErrUnavailable }

// goneError is a request that was not answered.
type goneError struct {
	cause   error
	unasked bool // it certainly was not sent
}

// Error returns the cause, which is of the connection or of time.
func (e *goneError) Error() string { return "no answer: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *goneError) Unwrap() error { return e.cause }

// Is reports that nobody decided.
func (e *goneError) Is(target error) bool { return target == ErrUnavailable }

// gone returns err, of a request, as the error that it is for its calls. That a caller went
// away is not the service's doing.
func gone(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	dial := (*net.OpError)(nil)
	unasked := errors.As(err, &dial) && dial.Op == "dial" || handshake.FailureOf(err) != handshake.None
	return &goneError{err, unasked}
}

// Why a call was not answered, beside what the network says.
var (
	errTimeout = new(timeoutError)
	errOpen    = errors.New("it failed several times in a row and is being probed")
	errFull    = errors.New("too many calls wait")
)

// timeoutError is that a call had no answer in time.
type timeoutError struct{ _ byte } // so that it has an address of its own

// Error says so.
func (*timeoutError) Error() string { return "the time of Options.Timeout is over" }

// recordedOf returns what err leaves of a call that counts: sent says that it may have
// reached the service.
func recordedOf(err error, counts, sent bool) Recorded {
	if !counts || !sent {
		return RecordedNo
	}
	if p := (*Problem)(nil); errors.As(err, &p) {
		if p.Recorded == "" && p.Status < http.StatusInternalServerError {
			return RecordedNo
		}
		if p.Recorded != "" {
			return p.Recorded
		}
	}
	if g := (*goneError)(nil); errors.As(err, &g) && g.unasked {
		return RecordedNo
	}
	return RecordedUnknown
}
