package exclusive

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// No other instance decides over the store, it is always reachable, and no writes are pending. So this decider needs none of
// these methods.

// Changed does nothing, because this decider remembers nothing of keys.
func (x *Decider) Changed(store.Key) {}

// LastReset returns 0: the store has all resets.
func (x *Decider) LastReset(store.Key) store.Instant { return 0 }

// Run does nothing.
func (x *Decider) Run(context.Context) {}
