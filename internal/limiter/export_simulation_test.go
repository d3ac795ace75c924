package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// DatedAt returns the instant that d's units are dated at; 0 when it is told again, or
// they are in several places.
func DatedAt(d *count.Decision) store.Instant { return d.Entry.At }
