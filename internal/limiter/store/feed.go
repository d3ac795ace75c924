package store

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Feed passes news, which are changes of keys, between instances. A store may implement it.
type Feed interface {
	// Publish makes c available to every instance for c's time to live.
	Publish(ctx context.Context, c *Change) error
	// Changes returns the changes that match q and have not expired, in no order. It may return other changes, too, and the
	// same change more than once.
	Changes(ctx context.Context, q *ChangeQuery) ([]Change, error)
	// Overrides returns the latest ChangeOverride of each key whose override has no end, read at level. It may return
	// other changes, too. An empty level is the feed's own.
	Overrides(ctx context.Context, level policy.Level) ([]Change, error)
}

// ChangeQuery asks for changes by the instant at which they were published, and by the time in their ids.
type ChangeQuery struct {
	Since Instant      // of changes published at this time or later
	Until Instant      // of changes whose own time is before this; zero: Distant
	Level policy.Level // of the read; empty: the feed's own
}

// Change is one change of a key, on which every instance acts.
type Change struct {
	ID      EventID // has the time of the change
	Kind    ChangeKind
	Key     Key
	Until   Instant       // the end of a block or an override; Distant: none
	Strikes int           // number of blocks of the key in a row, including this one
	Details string        // further content, by the kind; at most MaxChangeDetails bytes
	TTL     time.Duration // how long it is kept, in whole seconds
	Level   policy.Level  // of the write; empty: the feed's own
}

// Stays reports whether c is kept until another override of its key is published, whatever its TTL.
func (c *Change) Stays() bool { return c.Kind == ChangeOverride && c.Until >= Distant }

// ChangeKind is the kind of a Change. An instance ignores the kinds of later versions, which it does not know.
type ChangeKind string

// The kinds of changes.
const (
	ChangeReset  ChangeKind = "reset"  // all counts of the key are removed, blocks too
	ChangeRefund ChangeKind = "refund" // units of the key were refunded
	ChangeBlock  ChangeKind = "block"  // the key admits nothing before Until

	ChangeHold     ChangeKind = "hold"     // a reservation ends at Until; if the process that made it has died, another one ends it
	ChangeOverride ChangeKind = "override" // the key has an override until Until, or no longer has one; the latest change is in force
)

// MaxChangeDetails bounds Change.Details in bytes. An override of 16 limits with the longest names needs half of it.
const MaxChangeDetails = 4 << 10
