package embedded

import (
	"fmt"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// claims count the cells that are claims: idempotency keys, receipts that were used, reservations. Callers choose
// idempotency keys, so there may be any number; they must not keep out the keys that are counted. The disk does not keep
// which cells are claims: after a restart, those that were there before count as other keys until they expire.
type claims struct {
	most  int64 // at the same time
	all   atomic.Int64
	owned [claimOwners]atomic.Int64
}

const (
	// claimShare is the part of all keys that may be claims.
	claimShare = 4
	// ownerShare is the part of all claims that one owner may have, but minOwned in any case.
	ownerShare = 16
	minOwned   = 16
	// claimOwners is into how many groups owners fall by their hashes. Those of a group share its bound.
	claimOwners = 4096
)

// claimant says whose claim a cell is: the group of its owner, from firstOwner on.
type claimant uint16

const (
	noClaim claimant = iota
	noOwner
	firstOwner
)

func claimantOf(w *store.CellWrite) claimant {
	switch {
	case !w.Claim:
		return noClaim
	case w.Owner == 0:
		return noOwner
	}
	return firstOwner + claimant(w.Owner%claimOwners)
}

// of returns the counter of the claims of c's group, nil if there is no such bound.
func (c *claims) of(by claimant) *atomic.Int64 {
	if by < firstOwner {
		return nil
	}
	return &c.owned[by-firstOwner]
}

// add notes n more claims of by.
func (c *claims) add(by claimant, n int64) {
	if by == noClaim {
		return
	}
	c.all.Add(n)
	if owned := c.of(by); owned != nil {
		owned.Add(n)
	}
}

// full returns an error if there is no room for one more claim of by.
func (c *claims) full(by claimant) error {
	if by == noClaim {
		return nil
	}
	most := max(c.most/ownerShare, minOwned)
	if owned := c.of(by); owned != nil && owned.Load() >= most {
		return fmt.Errorf("%w (%w): %d idempotency keys of one identifier are in memory, and none of them has expired",
			store.ErrOverloaded, store.ErrNotStored, most)
	}
	if c.all.Load() >= c.most {
		return fmt.Errorf("%w (%w): %d idempotency keys, used receipts and reservations are in memory, and none of them has expired",
			store.ErrOverloaded, store.ErrNotStored, c.most)
	}
	return nil
}
