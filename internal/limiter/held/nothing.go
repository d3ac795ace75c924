package held

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Nobody else decides over the store, it is never asked in vain, and nothing waits to be written. So
// what others need these for, there is nothing to do here.

// AsGuest does do, which decides for targets.
func (x *Decider) AsGuest(ctx context.Context, _ []*demand.Target, do func(context.Context) error) error {
	return do(ctx)
}

// Recall decides nothing: the store is as near as what could be remembered of it.
func (x *Decider) Recall(*demand.Charge) bool { return false }

// KnownFull decides nothing: the store answers.
func (x *Decider) KnownFull(*demand.Charge) bool { return false }

// Changed does nothing: nothing is remembered.
func (x *Decider) Changed(store.Key) {}

// LastReset returns 0: the store tells all resets.
func (x *Decider) LastReset(store.Key) store.Instant { return 0 }

// Run does nothing.
func (x *Decider) Run(context.Context) {}
