package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// basis is what all parts of an engine go by: how they count in its store, and date what they do.
type basis struct {
	settings *demand.Settings
	ids      *store.EventIDs
	decider  judge.Decider
	inMemory bool // the store is in this process's memory
}

func (b *basis) now() store.Instant { return b.settings.Timing.Instant() }

// resetBy returns the instant up to which c, a reset, forgets: whatever was dated before
// it, by any clock.
func (b *basis) resetBy(c *store.Change) store.Instant {
	return c.ID.Instant().Add(2 * b.settings.ClockTolerance)
}
