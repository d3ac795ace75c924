package conn

import (
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Unavailable wraps err, which happened while doing something, as an error of the store.
func Unavailable(doing string, err error) error {
	if TooFew(err) || errors.Is(err, store.ErrTooFewReplicas) {
		return fmt.Errorf("%w: %s: %w: %w", store.ErrUnavailable, doing, store.ErrTooFewReplicas, err)
	}
	return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, doing, err)
}
