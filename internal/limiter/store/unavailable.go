package store

import (
	"errors"
	"fmt"
)

// Unavailable returns err as one that wraps ErrUnavailable, or what a store makes of it.
func Unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
