package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// basis has the settings and ids that all parts of an engine share, and the decider over its store.
type basis struct {
	settings *demand.Settings
	ids      *store.EventIDs
	decider  judge.Decider
	inMemory bool // the store is in this process's memory
}

func (b *basis) now() store.Instant { return b.settings.Timing.Instant() }

// resetBy returns the instant up to which c, a reset, removes units: no unit that was counted before the reset, by any
// instance's clock, has a later instant.
func (b *basis) resetBy(c *store.Change) store.Instant {
	return c.ID.Instant().Add(2 * b.settings.ClockTolerance)
}
