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
	// Place returns the decider for key. It waits until there is one. An error wraps store.ErrNotStored.
	Place(ctx context.Context, key store.Key) (Place, error)
	// PlaceFor returns the term under which this instance decides for key, for a charge that a peer handed on under the view
	// with this number. An error that wraps owner.ErrRefused means that this instance does not decide for key.
	PlaceFor(ctx context.Context, key store.Key, view int64) (owner.Term, error)
}

// Place is the decider for a key: this instance by Term, or else Owner.
type Place struct {
	Term  owner.Term // the caller must call its Leave; nil: Owner decides
	Owner Peer
	View  int64 // the number of the view that says so
}

// Peer is another instance.
type Peer interface {
	// Decide makes the peer do c's operation, and fills in c's decision. After an error for which IsUndone returns true the
	// peer did nothing, a count.StoreError says whether units count, and after any other error they may count. Decide does
	// not use c once it has returned.
	Decide(ctx context.Context, c *Charge) error
	// Tell is Decide without an answer: the caller does not learn whether c has arrived.
	Tell(c *Charge)
}

// IsUndone reports whether err means that a charge's decider certainly did nothing, because it does not own the key or was
// not reached.
func IsUndone(err error) bool {
	_, failed := errors.AsType[*count.StoreError](err)
	return errors.Is(err, owner.ErrRefused) || errors.Is(err, store.ErrNotStored) && !failed
}

// Definition is the definition of a policy, by which any instance can decide a charge.
type Definition struct {
	Policy string
	Print  uint64 // hash of Text
	Limit  int64  // the limit that came with the demand; 0: none
	Text   []byte // the result of Plan.Text; empty: the peer may know it by Print
}
