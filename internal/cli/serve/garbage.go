package serve

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/garbage"
)

// sparing returns a stage that raises the garbage collector's target, unless gogc, the value of GOGC, is set.
func sparing(gogc string) stage {
	if gogc != "" {
		return untilDone
	}
	return func(ctx context.Context) error { return garbage.Spare(ctx, 1) }
}
