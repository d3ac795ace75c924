package store

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Feed carries news between instances. A store may be one.
type Feed interface {
	// Publish makes c known to every instance for as long as c lives.
	Publish(ctx context.Context, c *Change) error
	// Changes returns what q asks for of all that was published and still lives, in no
	// order. It may return more, and the same change more than once.
	Changes(ctx context.Context, q *ChangeQuery) ([]Change, error)
	// Overrides returns the latest ChangeOverride of each key that has one without end, read at
	// level. It may return others as well. An empty level is the feed's own.
	Overrides(ctx context.Context, level policy.Level) ([]Change, error)
}

// ChangeQuery asks for the changes that were published since an instant, and are dated before
// another.
type ChangeQuery struct {
	Since Instant
	Until Instant      // zero: Distant
	Level policy.Level // of the read; empty: the feed's own
}

// Change is news of one key that every instance acts on.
type Change struct {
	ID      EventID // dated when it was made
	Kind    ChangeKind
	Key     Key
	Until   Instant       // the end of a block or an override; Distant: that has none
	Strikes int           // blocks of the key in a row, this one included
	Details string        // what else there is to know, by the kind; at most MaxChangeDetails bytes
	TTL     time.Duration // for how long it is kept; whole seconds
	Level   policy.Level  // that it is published at; empty: the feed's own
}

// Stays reports whether c is kept until another override of its key is published, whatever its TTL.
func (c *Change) Stays() bool { return c.Kind == ChangeOverride && c.Until >= Distant }

// ChangeKind says what a Change is about. Kinds that an instance does not know are
// of a later version and are passed over.
type ChangeKind string

// The kinds of changes.
const (
	ChangeReset  ChangeKind = "reset"  // what was counted is forgotten, blocks too
	ChangeRefund ChangeKind = "refund" // some of what was counted was given back
	ChangeBlock  ChangeKind = "block"  // nothing is admitted before Until

	ChangeHold     ChangeKind = "hold"     // a reservation is to be ended at Until by whoever comes after the process that made it
	ChangeOverride ChangeKind = "override" // the key is decided otherwise until Until, or no longer is: the latest one stands
)

// MaxChangeDetails bounds Change.Details in bytes: 16 limits of an override, with names as
// long as they may be, come to half of it.
const MaxChangeDetails = 4 << 10
