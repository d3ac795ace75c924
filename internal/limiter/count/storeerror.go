package count

import (
	"fmt"
)

// StoreError is a decision that the store's failure prevented, under a policy
// that denies on that. It wraps ErrUnavailable or ErrOverloaded.
type StoreError struct {
	Recorded Recorded // whether the units count all the same
	Err      error    // what the store said
}

// Error says what the store said, and what became of the units.
func (e *StoreError) Error() string {
	return fmt.Sprintf("deciding (recorded: %s): %v", e.Recorded, e.Err)
}

// Unwrap returns what the store said.
func (e *StoreError) Unwrap() error { return e.Err }
