package limiter

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Simulated returns o with the random waits that jitter gives, so that they can be
// replayed. Forgetful engines remember no denials, so that more comes to the store.
func (o Options) Simulated(jitter func(below time.Duration) time.Duration, forgetful bool) *Options {
	o.jitter, o.forgetful = jitter, forgetful
	return &o
}

// DatedAt returns the instant that d's units are dated at; 0 when it is told again, or
// they are in several places.
func DatedAt(d *count.Decision) store.Instant { return d.Entry.At }
