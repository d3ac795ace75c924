package demand

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Owners finds the instance that decides for a key. Each key has one owner, or all instances decide for it.
type Owners interface {
	// Place returns the place that decides for key. It waits until there is one. An error wraps store.ErrNotStored.
	Place(ctx context.Context, key store.Key) (Place, error)
	// PlaceFor returns the term under which this instance decides for key, for a charge that a peer handed on under the
	// view with that number. An error that wraps owner.ErrRefused means that it does not decide for key.
	PlaceFor(ctx context.Context, key store.Key, view int64) (owner.Term, error)
}

// Place is the decider for a key: this instance by Term, or else Owner.
type Place struct {
	Term  owner.Term // the caller must call Leave
	Owner Peer
	View  int64 // the number of the view that is the reason
}

// Peer is another instance.
type Peer interface {
	// Decide makes the peer do what c says, and fills in c's decision. Errors are undone, or a count.StoreError; after
	// any other error, units may be counted. It does not use c once it has returned.
	Decide(ctx context.Context, c *Charge) error
	// Tell is Decide without an answer. It is not known whether c arrives.
	Tell(c *Charge)
}

// IsUndone reports whether err says that a charge's decider surely did nothing, as it does not own the key or was not
// reached.
func IsUndone(err error) bool {
	_, failed := errors.AsType[*count.StoreError](err)
	return errors.Is(err, owner.ErrRefused) || errors.Is(err, store.ErrNotStored) && !failed
}

// Definition is the definition of a policy by which a charge is decided, wherever that happens.
type Definition struct {
	Policy string
	Print  uint64 // of Text
	Limit  int64  // that came with the demand; 0: none
	Text   []byte // as Plan.Text returns it; empty: the peer may know it by its print
}
