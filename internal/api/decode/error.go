package decode

import (
	"errors"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Kinds of errors of a body, beside limiter.ErrInvalid. An Error wraps one of them with more to say.
var (
	ErrBody     = errors.New("malformed body")
	ErrTooLarge = errors.New("body too large")
	ErrNotJSON  = errors.New("not JSON")
	ErrTooSlow  = errors.New("body not received in time")
)

// ErrBusy is a body that there is no memory for. Nothing of it was done.
var ErrBusy error = &Error{
	Kind:   store.ErrOverloaded,
	Detail: "Large requests and answers of others take all the memory that there is: send it again, perhaps in smaller parts.",
}

// Error is an error of a request, with a sentence for its sender. It quotes names of members at
// most, never values.
type Error struct {
	Kind   error
	Field  string // the member, header or parameter that is wrong; empty: the whole
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

// maxEchoedNameLen bounds the unknown names that a problem repeats: twice the longest known one, so
// that slips are shown and little else.
const maxEchoedNameLen = 32

// Unknown returns the error of a member or a parameter that is not among known. It names it only if
// it looks like a name: an identifier in the wrong place is not to be echoed.
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

// Under puts path in front of the field that err names; nil stays nil. A path that ends in a dot is
// that of an object, which err may be about as a whole.
func Under(path string, err error) error {
	var wrong *Error
	if errors.As(err, &wrong) {
		wrong.Field = strings.TrimSuffix(path+wrong.Field, ".")
	}
	return err
}

// CallError is an error of an operation, and says whether its units are recorded.
type CallError struct {
	Call     *Call          // nil: none of check, record and take
	Recorded count.Recorded // what a failure left behind
	Err      error
}

// Error returns the error's own text.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *CallError) Unwrap() error { return e.Err }

// Undone returns err as that of what is no call, with what it says of the units; nil stays nil.
func Undone(err error) error {
	if err == nil {
		return nil
	}
	return &CallError{Recorded: RecordedOf(err), Err: err}
}

// Failed returns err as that of c. recorded is what the engine says of the units of all
// demands; empty: nothing.
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

// RecordedOf returns what err says of the units: that it is unknown if it says nothing.
func RecordedOf(err error) count.Recorded {
	if store := (*count.StoreError)(nil); errors.As(err, &store) {
		return store.Recorded
	}
	return count.RecordedUnknown
}

// Field returns what the caller knows as name, which is what the engine calls it.
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
