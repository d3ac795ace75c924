package decode

import (
	"errors"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Kinds of errors of a body, besides limiter.ErrInvalid. An Error wraps one of them and adds details.
var (
	ErrBody     = errors.New("malformed body")
	ErrTooLarge = errors.New("body too large")
	ErrNotJSON  = errors.New("not JSON")
	ErrTooSlow  = errors.New("body not received in time")
)

// ErrBusy is the error of a body for which there is no memory. Nothing was counted.
var ErrBusy error = &Error{
	Kind:   store.ErrOverloaded,
	Detail: "Large requests and answers of others use all the memory: send the request again, perhaps in smaller parts.",
}

// Error is an error of a request, with a sentence for its sender, which may quote names of members, but never values.
type Error struct {
	Kind   error
	Field  string // the wrong member, header or parameter; empty: the whole request
	Detail string
}

// Error returns the field and the detail.
func (e *Error) Error() string { return strings.TrimPrefix(e.Field+": "+e.Detail, ": ") }

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

// Wrong returns an Error of the kind limiter.ErrInvalid.
func Wrong(field, detail string) error {
	return &Error{Kind: limiter.ErrInvalid, Field: field, Detail: detail}
}

// maxEchoedNameLen is the maximum length of an unknown name that a problem quotes, twice that of the longest known one:
// mistyped names are shown, and little else.
const maxEchoedNameLen = 32

// Unknown returns the error of a member or a parameter that is not among known. It only quotes text that looks like a
// name, because an identifier in the wrong place must not be echoed.
func Unknown(name string, known []string) error {
	isName := len(name) > 0 && len(name) <= maxEchoedNameLen
	for _, c := range []byte(name) {
		isName = isName && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_')
	}
	subject := name
	if !isName {
		name, subject = "", "One of the names"
	}
	return Wrong(name, subject+" is not a known field. Known fields: "+strings.Join(known, ", ")+".")
}

// Under puts path in front of the field of err, and returns nil for nil. A path of an object ends in a dot, which is
// removed if err has no field.
func Under(path string, err error) error {
	var wrong *Error
	if errors.As(err, &wrong) {
		wrong.Field = strings.TrimSuffix(path+wrong.Field, ".")
	}
	return err
}

// CallError is an error of an operation, and says whether its units are recorded.
type CallError struct {
	Call     *Call          // nil: not a check, record or take
	Recorded count.Recorded // whether a failure left units recorded
	Err      error
}

// Error returns the error's own text.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *CallError) Unwrap() error { return e.Err }

// Undone returns err as a CallError without a call, with what is known about its units. It returns nil for nil.
func Undone(err error) error {
	if err == nil {
		return nil
	}
	return &CallError{Recorded: RecordedOf(err), Err: err}
}

// Failed returns err as the error of c. recorded is what the engine knows about the units of all demands; empty:
// nothing.
func (c *Call) Failed(recorded count.Recorded, err error) *CallError {
	switch {
	case recorded != "":
	case c.Op == count.OpCheck && c.Reserve == 0:
		recorded = count.RecordedNo
	default:
		recorded = RecordedOf(err)
	}
	return &CallError{Call: c, Recorded: recorded, Err: err}
}

// RecordedOf returns what err says about the units, RecordedUnknown if it says nothing.
func RecordedOf(err error) count.Recorded {
	if store := (*count.StoreError)(nil); errors.As(err, &store) {
		return store.Recorded
	}
	return count.RecordedUnknown
}

// Field returns the caller's name of a field that the engine calls name.
func (e *CallError) Field(name string) string {
	c := e.Call
	if name == "" || c == nil {
		return name
	}
	demand := (*limiter.DemandError)(nil)
	switch {
	case errors.As(e.Err, &demand):
		name = DemandPath(demand.Index) + name
	case c.Listed && len(c.Demands) == 1 && slices.Contains(demandNames, name):
		name = DemandPath(0) + name
	case c.Place == 0 && name == "idempotency_key":
		return IdempotencyKeyHeader
	}
	return c.Path() + name
}
