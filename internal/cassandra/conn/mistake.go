package conn

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gocql/gocql"
)

// A Mistake is the reason why a cluster that answers can't be used until an operator fixes something: wrong settings, tables to
// migrate, or a binary to upgrade. All other errors may be temporary.
type Mistake struct{ Err error }

// Mistakef returns a Mistake whose error is that of fmt.Errorf.
func Mistakef(format string, args ...any) error { return &Mistake{fmt.Errorf(format, args...)} }

// Error says what is wrong.
func (m *Mistake) Error() string { return m.Err.Error() }

// Unwrap returns the error itself.
func (m *Mistake) Unwrap() error { return m.Err }

// IsMistake reports whether err is, or wraps, a Mistake.
func IsMistake(err error) bool {
	_, ok := errors.AsType[*Mistake](err)
	return ok
}

// Judged returns err, wrapped in a Mistake if it is a node's permanent refusal.
func Judged(err error) error {
	if RefusedForGood(err) && !IsMistake(err) {
		return &Mistake{err}
	}
	return err
}

// unableToAuthenticate is the beginning of a node's message if it could not read the table of users, as too few of its
// replicas are alive. The message's code is that of wrong credentials.
const unableToAuthenticate = "Unable to perform authentication"

// authenticationRequired is the beginning of the driver's message if it has no user.
const authenticationRequired = "authentication required"

// RefusedForGood reports whether err is a node's permanent refusal of the user or of the request.
func RefusedForGood(err error) bool {
	refusal, ok := errors.AsType[gocql.RequestError](err)
	if !ok {
		return false
	}
	switch refusal.Code() {
	case gocql.ErrCodeCredentials:
		return !strings.HasPrefix(refusal.Message(), unableToAuthenticate)
	case gocql.ErrCodeUnauthorized, gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeConfig:
		return true
	}
	return false
}

// refusals keeps the last refusal while a session is made, because the driver returns only its text. It implements
// gocql.ConnectObserver.
type refusals struct {
	mu   sync.Mutex
	last error
}

// ObserveConnect notes the refusal of a connection.
func (r *refusals) ObserveConnect(c gocql.ObservedConnect) {
	if c.Err == nil || !RefusedForGood(c.Err) && !strings.HasPrefix(c.Err.Error(), authenticationRequired) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = c.Err
}

// refusal returns the last refusal, nil if there was none.
func (r *refusals) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
