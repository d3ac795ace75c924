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
	ErrUnavailable   = errors.New("ratelimitd does not decide")          // it cannot be reached, is late or broken, or its store is away
	ErrInvalid       = errors.New("the call is wrong")                   // as it stands it will never be decided
	ErrUnknownPolicy = errors.New("no policy of that name is in force")  // and the call is wrong
	ErrCostTooLarge  = errors.New("the cost is more than a limit holds") // and the call is wrong
	ErrKeyReused     = errors.New("the idempotency key was another's")   // and the call is wrong
	ErrNoReceipt     = errors.New("there is nothing to refund or to confirm")
	ErrClosed        = errors.New("the client is closed")
	ErrNoRoom        = line.ErrNoRoom // a Wait would not end in time
)

// CallError is every error of a call: whether its units count, and why there is no decision.
// It wraps a *Problem where the service gave a reason.
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

// RecordedOf returns whether the units of the call count that failed with err: empty if err is not an error of a call.
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

// foreignError is an answer that ratelimitd does not give, as an ErrUnavailable.
type foreignError struct{ *transport.ForeignError }

// Is reports whether target is ErrUnavailable.
func (foreignError) Is(target error) bool { return target == ErrUnavailable }

// foreign returns err, of an answer that ratelimitd does not give, as an ErrUnavailable; else it
// returns err as it is.
func foreign(err error) error {
	if f, ok := errors.AsType[*transport.ForeignError](err); ok {
		return foreignError{f}
	}
	return err
}

// noAnswerError is a request that was not answered.
type noAnswerError struct {
	cause   error
	notSent bool // certainly; false: it may have been
}

// Error returns the cause, which is of the connection or of time.
func (e *noAnswerError) Error() string { return "no answer: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *noAnswerError) Unwrap() error { return e.cause }

// Is reports whether target is ErrUnavailable.
func (e *noAnswerError) Is(target error) bool { return target == ErrUnavailable }

// noAnswer returns err, of a request with ctx, as the error of its calls. If the callers went away, it is not the
// service's fault.
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

// causeOf returns why a request ended: the cause of its cancellation, or err. It ignores the cause that callers gave to
// a context of theirs, which tells nothing about the service.
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

// errTimeout is the error of a call without an answer in time.
var errTimeout = new(timeoutError)

type timeoutError struct{ _ byte } // so that it has an address of its own

// Error says so.
func (*timeoutError) Error() string { return "the time of Options.Timeout is over" }

// recordedOf returns whether units count after a call that failed with err. leavesUnits says
// that the call counts or holds some, and sent that it may have reached the service.
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
