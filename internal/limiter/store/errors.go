package store

import (
	"errors"
	"fmt"
)

// Errors of stores, which callers tell apart with errors.Is.
var (
	// ErrUnavailable is a store that did not answer in time, or not rightly.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNotStored accompanies ErrUnavailable where it is sure that nothing was
	// stored: the request never got as far.
	ErrNotStored = errors.New("nothing was stored")
	// ErrTooFewReplicas accompanies ErrUnavailable where the store answered at once
	// that a level cannot be met now: others may well be.
	ErrTooFewReplicas = errors.New("too few replicas are alive for the level")
	// ErrNotConnected accompanies ErrUnavailable and ErrNotStored where the store has not
	// been reached since this process started.
	ErrNotConnected = errors.New("the store has not been reached since the start")
	// ErrConflict is a compare-and-set whose condition did not hold: somebody else
	// came first, and nothing was stored.
	ErrConflict = errors.New("the cell has changed")
	// ErrOverloaded is a bound of this process or of the store that was reached:
	// waiters of one key, keys in memory.
	ErrOverloaded = errors.New("overloaded")
)

// Untold is the error of attempts whose fate is not known. The last one may have met its
// condition changed by an earlier one of them: that must not pass for a conflict, after
// which nothing is stored.
func Untold(failed error) error {
	return fmt.Errorf("%w: whether it was stored is not known: %s", ErrUnavailable, failed.Error())
}

// Unavailable returns err as one that wraps ErrUnavailable, or what a store makes of it.
func Unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
