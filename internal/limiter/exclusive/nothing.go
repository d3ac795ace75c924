package exclusive

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// No other instance decides over the store, it is always reachable, and no writes are pending. So these methods have
// nothing to do here.

// Changed does nothing: nothing is remembered.
func (x *Decider) Changed(store.Key) {}

// LastReset returns 0: the store has all resets.
func (x *Decider) LastReset(store.Key) store.Instant { return 0 }

// Run does nothing.
func (x *Decider) Run(context.Context) {}
