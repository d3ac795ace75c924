package embedded

import (
	"fmt"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// claims counts the cells that are claims of idempotency keys, used receipts and reservations. Callers choose idempotency
// keys and can make any number of them, so a bound leaves room for the keys that are counted. The disk does not say which
// cells are claims: after a restart, earlier claims count as other keys until they expire.
type claims struct {
	most  int64 // the most claims at the same time
	all   atomic.Int64
	owned [claimOwners]atomic.Int64
}

const (
	// claimShare divides the number of keys: so many may be claims.
	claimShare = 4
	// ownerShare divides the number of claims: so many may be of one owner, and at least minOwned.
	ownerShare = 16
	minOwned   = 16
	// claimOwners is the number of groups into which owners fall by their hashes. The owners of a group share its
	// bound.
	claimOwners = 4096
)

// claimant is the group of a claim's owner, if it is firstOwner or more.
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

// of returns the number of claims of the group by, nil if by has no bound of its own.
func (c *claims) of(by claimant) *atomic.Int64 {
	if by < firstOwner {
		return nil
	}
	return &c.owned[by-firstOwner]
}

// add adds n to the number of by's claims.
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
