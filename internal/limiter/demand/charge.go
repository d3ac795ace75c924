package demand

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Charge is one demand on its way through a store: what is asked, and what came of
// it.
type Charge struct {
	Target
	Op       count.Op
	Cost     int64
	Hold     time.Duration // for how long the units are held unless they are settled; 0: they stay
	ID       store.EventID // of its event; zero: the store's decider makes one
	Override *Override     // of its key; nil: none
	Ends     bool          // it has no more time than its context; else a store timeout, which others may share
	Told     bool          // its decision is made

	Refused policy.Reason // the rule about numbers that denies it, unless an override allows it; empty: none does

	Placed bool // its event may have been written to a log, whether it counts or not

	Right owner.Right // by which it is decided; nil: nobody owns keys

	Prepare store.EventID // under which it is prepared, to be committed or aborted; zero: it stays
	AtOnce  bool          // it is not to wait for other calls: the error wraps ErrInDoubt then
	Asked   bool          // somebody was asked to decide it
	Owner   owner.Peer    // who was; nil: this instance

	MayBeginAnew bool // its call may be decided anew by a later version of the policies

	Memory any // of who decides it alone, to be used again; nil: it is to be found

	Decision count.Decision
	Err      error
}

// IsPlain reports whether c is counted for one key by one step, with nothing held: its owner can
// decide it from memory.
func (c *Charge) IsPlain() bool {
	return len(c.Plan.Parts) == 0 && c.Hold == 0 && c.ID == (store.EventID{}) && !c.Ends && c.Override == nil
}

// OpIf returns what becomes of c when another one blocks the call: it is
// counted only if denied attempts are.
func (c *Charge) OpIf(blocked bool) count.Op {
	if blocked && c.Op.MayDeny() && (c.Op == count.OpReserve || c.Plan.Count != policy.CountAll) {
		return count.OpCheck
	}
	return c.Op
}

// IsUnasked reports whether c is what an override to allow or to block decides: a record is
// counted all the same, and who looks at what is counted is told.
func (c *Charge) IsUnasked() bool {
	return c.Op != count.OpRecord && c.Cost > 0 && c.Plan.Mode != policy.ModeOff
}
