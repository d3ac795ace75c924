package count

import (
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// FateOf says what became of a write that failed with err.
func FateOf(err error) Recorded {
	if errors.Is(err, store.ErrNotStored) {
		return RecordedNo
	}
	return RecordedUnknown
}
