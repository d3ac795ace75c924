package store

import (
	"errors"
	"fmt"
)

// Errors of stores, for errors.Is.
var (
	// ErrUnavailable means that the store did not answer in time, or not correctly.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNotStored accompanies ErrUnavailable if certainly nothing was stored, as the request never reached the store.
	ErrNotStored = errors.New("nothing was stored")
	// ErrTooFewReplicas accompanies ErrUnavailable if the store answered at once that too few replicas are alive for the
	// level. There may be enough for other levels.
	ErrTooFewReplicas = errors.New("too few replicas are alive for the level")
	// ErrNotConnected accompanies ErrUnavailable and ErrNotStored if the store has not been reached since this process
	// started.
	ErrNotConnected = errors.New("the store has not been reached since the start")
	// ErrConflict means that a compare-and-set's condition did not hold: another change came first, and nothing was
	// stored.
	ErrConflict = errors.New("the cell has changed")
	// ErrOverloaded means that a bound of this process or of the store is reached, such as that on callers that wait for
	// one key, or on keys in memory.
	ErrOverloaded = errors.New("overloaded")
)

// Untold returns the error of several attempts if it is not known whether one was stored. An earlier attempt may have
// changed the condition of the last one. The last one's conflict must then not be reported as ErrConflict, which says that
// nothing was stored.
func Untold(failed error) error {
	return fmt.Errorf("%w: whether it was stored is not known: %s", ErrUnavailable, failed.Error())
}

// Unavailable returns err wrapped in ErrUnavailable, unless it is ErrUnavailable or ErrOverloaded already.
func Unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
