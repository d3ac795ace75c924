package judge

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Decider is the way in which an engine decides over its store and changes what is counted there. There are
// two: held, over a store in this process's memory, and handon, over one that instances share.
type Decider interface {
	// Instant returns the instant to decide at. The error says that this instance's clock is beyond the tolerance.
	Instant() (store.Instant, error)
	// Decide decides c, and fills in its decision and error.
	Decide(ctx context.Context, c *demand.Charge)
	// DecideAll decides charges, all or none of them, and fills in their decisions and errors.
	DecideAll(ctx context.Context, charges []demand.Charge)
	// Recall decides c, and reports true, if what is remembered of its key leaves no room.
	Recall(c *demand.Charge) bool
	// KnownFull is Recall while the store does not answer.
	KnownFull(c *demand.Charge) bool

	// GiveBack takes out of the store what n counted for t, of sums only if these are those that counted it.
	// It must be called once only.
	GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error
	// EndHold is GiveBack of what is held until an instant. It may be called again: mark is a key of its own, for
	// as long as kept.
	EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, ends store.Instant, mark store.Key, kept time.Duration) error
	// SettleEvent makes n's event stay, which was held, if t keeps events. It may ask whether one that is not
	// there was removed.
	SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry, removed func() (bool, error)) error
	// Reset forgets all that is counted for t. The error is a StoreError.
	Reset(ctx context.Context, t *demand.Target) error
	// AsGuest does do, which decides for targets in several steps. What it did stands only if the error is nil.
	AsGuest(ctx context.Context, targets []*demand.Target, do func(context.Context) error) error

	// Changed ends what is remembered of key: somebody gave something back.
	Changed(key store.Key)
	// LastReset returns the latest reset of key that is known beside what the store tells; 0: none.
	LastReset(key store.Key) store.Instant
	// Run does what is to be done beside decisions, until ctx ends, and then what is left of it.
	Run(ctx context.Context)
}
