package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
	"github.com/ratelimitd/ratelimitd/client/internal/transport"
	"github.com/ratelimitd/ratelimitd/client/line"
)

// Kinds of errors, for errors.Is.
var (
	ErrUnavailable   = errors.New("ratelimitd does not decide")                    // the service or its store is down, late or broken
	ErrInvalid       = errors.New("the call is wrong")                             // it will never be decided as it is
	ErrUnknownPolicy = errors.New("no policy of that name is in force")            // also an ErrInvalid
	ErrCostTooLarge  = errors.New("the cost is more than a limit holds")           // also an ErrInvalid
	ErrKeyReused     = errors.New("the idempotency key was used for another call") // also an ErrInvalid
	ErrNoReceipt     = errors.New("there is nothing to refund or to confirm")
	ErrClosed        = errors.New("the client is closed")
	ErrNoRoom        = line.ErrNoRoom // a Wait would not end in time
)

// CallError is the error of every call: it says whether the call's units count, and why there is no decision. It wraps
// a *Problem if the service gave a reason.
type CallError struct {
	Op       string   // check, record, take, batch, refund, confirm, reset or explain
	Recorded Recorded // whether the units count; of a reset, whether it took effect
	Err      error
}

// Error names the operation that failed and, unless that is obvious, says that it may count.
func (e *CallError) Error() string {
	text := "ratelimitd: " + e.Op + ": " + e.Err.Error()
	if e.Recorded == RecordedUnknown {
		text += " (whether it counts is unknown)"
	}
	return text
}

// Unwrap returns the reason.
func (e *CallError) Unwrap() error { return e.Err }

// RecordedOf returns whether the units of a call that failed with err count; empty if err is not an error of a call.
func RecordedOf(err error) Recorded {
	if call, ok := errors.AsType[*CallError](err); ok {
		return call.Recorded
	}
	return ""
}

// Problem is an answer without a decision, in the form of RFC 9457.
type Problem struct {
	Type       string // a URI, or about:blank
	Title      string
	Status     int
	Field      string // the member that is wrong, such as cost or demands[1].policy; empty: none
	Detail     string
	Recorded   Recorded      // whether the units count; empty: they don't
	RetryAfter time.Duration // the wait before another try; 0: the service did not say
}

// typeKeyReused is the type of a 422 for a key that another request has used.
const typeKeyReused = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused"

// Error returns the status, the field and the detail. The service repeats no identifier in them.
func (p *Problem) Error() string {
	text := strings.TrimPrefix(p.Field+": "+p.Detail, ": ")
	if p.Status == 0 {
		return text
	}
	return "status " + strconv.Itoa(p.Status) + ": " + text
}

// Is reports whether p is an error of the kind target.
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

// refuse returns the problem of a call that is not sent.
func refuse(field, detail string) *Problem { return &Problem{Field: field, Detail: detail} }

// foreignError is an answer that does not come from ratelimitd. It is an ErrUnavailable.
type foreignError struct{ *transport.ForeignError }

// Is reports whether target is ErrUnavailable.
func (foreignError) Is(target error) bool { return target == ErrUnavailable }

// foreign returns err as an ErrUnavailable if it is about an answer that does not come from ratelimitd, and unchanged
// if not.
func foreign(err error) error {
	if f, ok := errors.AsType[*transport.ForeignError](err); ok {
		return foreignError{f}
	}
	return err
}

// noAnswerError is the error of a request without an answer.
type noAnswerError struct {
	cause   error
	notSent bool // the request was certainly not sent
}

// Error returns the cause: the connection, or the time.
func (e *noAnswerError) Error() string { return "no answer: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *noAnswerError) Unwrap() error { return e.cause }

// Is reports whether target is ErrUnavailable.
func (e *noAnswerError) Is(target error) bool { return target == ErrUnavailable }

// noAnswer returns err, of a request with ctx, as the error of its calls. If the callers have left, it is not an
// ErrUnavailable.
func noAnswer(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*transport.ForeignError](err); ok {
		return foreignError{f}
	}
	err = causeOf(ctx, err)
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return &noAnswerError{err, transport.NotSent(err)}
}

// causeOf returns why a request ended: the cause of its cancellation, or err. It ignores causes set by callers, which
// say nothing about the service.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	switch cause := context.Cause(ctx).(type) { //nolint:errorlint // a caller's own may wrap the client's
	case *join.LeftError:
		return cause.Why
	case *timeoutError:
		return cause
	}
	return ctx.Err()
}

// queueError returns err, of the queue, as the error of a call.
func queueError(err error) error {
	switch {
	case errors.Is(err, join.ErrClosed):
		return ErrClosed
	case errors.Is(err, join.ErrFull):
		return &noAnswerError{cause: err, notSent: true}
	}
	return err
}

// errTimeout is the error of a call that was not answered in time.
var errTimeout = new(timeoutError)

type timeoutError struct{ _ byte } // not empty, so that it has its own address

// Error says that the time is over.
func (*timeoutError) Error() string { return "the time of Options.Timeout is over" }

// recordedOf returns whether units count after a call that failed with err. leavesUnits says that the call counts or
// holds units, and sent that it may have reached the service.
func recordedOf(err error, leavesUnits, sent bool) Recorded {
	if !leavesUnits || !sent {
		return RecordedNo
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		if p.Recorded == "" && p.Status < http.StatusInternalServerError {
			return RecordedNo
		}
		if p.Recorded != "" {
			return p.Recorded
		}
	}
	if n, ok := errors.AsType[*noAnswerError](err); ok && n.notSent {
		return RecordedNo
	}
	return RecordedUnknown
}
