package demand

import (
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// DatedError is a request whose event was dated by its maker, and not late enough:
// a reset has forgotten it, and nothing of it counts.
type DatedError struct{ After store.Instant }

// TooEarly reports whether err is a DatedError.
func TooEarly(err error) bool {
	if err == nil { // so that the usual case allocates nothing
		return false
	}
	var early *DatedError
	return errors.As(err, &early)
}

// Error says so.
func (*DatedError) Error() string { return "the key was reset later than its event is dated" }

// Is makes it an ErrOverloaded for whoever doesn't try again.
func (*DatedError) Is(target error) bool { return target == store.ErrOverloaded }
