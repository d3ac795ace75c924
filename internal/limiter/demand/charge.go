package demand

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Target is one identifier under one policy. It has the keys under which the identifier is counted.
type Target struct {
	Plan    *Plan
	Key     store.Key   // for writes, under the current hash key
	OldKeys []store.Key // further keys to read, while the hash key changes
}

// Of returns the target of id.
func (p *Plan) Of(id keys.Identifier) Target {
	var t Target
	p.Locate(&t, id)
	return t
}

// Locate makes t, which must be zero, the target of id.
func (p *Plan) Locate(t *Target, id keys.Identifier) {
	t.Plan, t.Key = p, p.Keys[0].Of(id)
	if p.ByKey != nil {
		t.Plan = p.At(t.Key)
	}
	for _, keys := range t.Plan.Keys[1:] {
		t.OldKeys = append(t.OldKeys, keys.Of(id))
	}
}

// At returns the plan that decides for key: p, unless a limit of p has a number of its own for the key's identifier. It needs
// only the key, as an owner does not know the identifier.
func (p *Plan) At(key store.Key) *Plan {
	if own := p.ByKey[key]; own != nil {
		return own
	}
	return p
}

// As returns t under another plan of its policy, which may have other keys.
func (t Target) As(p *Plan) Target {
	t.Plan = p
	if len(p.Keys) == 1 {
		t.OldKeys = nil
	}
	return t
}

// Settling returns the write that makes n's event, which was held for t, permanent. t must count in a log.
func (t *Target) Settling(n *count.Entry) *store.Write {
	return &store.Write{
		Key: t.Key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites, Settle: true,
		Events: []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}},
	}
}

// Removal returns the write that removes events from t's log.
func (t *Target) Removal(events []store.Event) *store.Write {
	w := &store.Write{Key: t.Key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites, Tally: t.Plan.Tally, Span: t.Plan.Span}
	for _, e := range events {
		w.Remove = append(w.Remove, e.ID)
	}
	return w
}

// Adding returns the write that adds counts for t.
func (t *Target) Adding(counts []store.Count) *store.Write {
	return &store.Write{Key: t.Key, Level: t.Plan.Consistency.Write, Add: counts, Tally: t.Plan.Tally, Span: t.Plan.Span}
}

// HoldEnd is the end of a hold, and the cell by which a store that can lock keys gives its units back only once.
type HoldEnd struct {
	At   store.Instant
	Mark store.Key     // key of the cell, which has no other use
	Kept time.Duration // how long the cell is kept
}

// Charge is one demand while it is decided, here or by a peer: the demand and its result. It holds keys, never an
// identifier.
type Charge struct {
	Target
	Op       count.Op
	Cost     int64
	Hold     time.Duration // how long the units are held unless they are settled; 0: they are permanent
	ID       store.EventID // the ID of its event, fixed by a claim; zero: the decider makes one
	Spare    store.EventID // replaces ID once units under ID were given back, as an id is used only once; zero: none
	Override *Override     // the override of its key; nil: none
	Alone    bool          // it is decided in a batch of its own, with its context's deadline
	Told     bool          // it is decided already
	Derived  bool          // a policy derived it: it is not in the caller's request

	Refused policy.Reason // the rule about numbers that denies it, unless an override allows it; empty: none denies

	Marks []Mark // parts of identifiers that a confirmation of its call makes known
	Quiet bool   // its decision is observed later, once it is final

	Placed bool // its event may have been written to a log, whether it counts or not

	Term owner.Term // the term under which it is decided; nil: keys have no owners

	Prepare store.EventID // the id under which it is prepared, to be committed or aborted, or of the take to abort; zero: not prepared
	AtOnce  bool          // it must not wait for other calls: if it would, the error wraps prepared.ErrInDoubt
	Asked   bool          // an instance was asked to decide it

	// For the instance that hands it on, and for the one that then decides it.
	Owner      Peer          // the instance that was asked; nil: this one
	View       int64         // the number of the view by which the owner was chosen
	Definition *Definition   // the definition of Plan; nil: it is a commit or an abort, which need no plan
	Back       *count.Entry  // the counted or held units, for owner.OpGiveBack and owner.OpSettle
	Steady     time.Duration // how long a denial remains true if nothing is given back; 0: unknown

	Memory any // reusable memory of the decider, if it decides the charge alone; nil: the decider allocates some

	Decision count.Decision
	Err      error

	// For a decision in a batch with other charges of its key.
	Leaves bool            // its caller waits for it until Until at most, and does not use it after that
	Denied bool            // it has a denial, which stands if another attempt fails
	Spent  bool            // its event may have been written, so its ID must not be used again
	Fewer  <-chan struct{} // closed when a charge in doubt can be tried again
	Ctx    context.Context // its caller's context; nil unless batches are observed
	Until  time.Time       // when its caller gives up; zero: never
	Turn   chan []*Charge  // receives the batch to lead, or is closed when it is decided

	Does func(context.Context) error // runs instead of a decision, with Alone, and returns Err; nil: the charge is decided
}

// Mark is the target of a part of an identifier that a confirmation makes known.
type Mark struct{ Target }

// OpIf returns c's operation. blocked says whether another charge denies the call: if so, c counts only if its policy counts
// denied attempts.
func (c *Charge) OpIf(blocked bool) count.Op {
	if blocked && c.Op.MayDeny() && c.CanAbort() {
		return count.OpCheck
	}
	return c.Op
}

// IsUnasked reports whether an override to allow or to block decides c without reading counts. It does not decide records,
// which count nevertheless, or checks with a cost of 0, which return the counts.
func (c *Charge) IsUnasked() bool {
	return c.Op != count.OpRecord && c.Cost > 0 && c.Plan.Mode != policy.ModeOff
}

// CanAbort reports whether c does not count if other charges deny the call.
func (c *Charge) CanAbort() bool { return c.Op == count.OpReserve || c.Plan.Count != policy.CountAll }

// IsDated reports whether the event of c already has an id, and so a date.
func (c *Charge) IsDated() bool { return c.ID != store.EventID{} }

// IsAlone reports whether c is decided in a batch of its own.
func (c *Charge) IsAlone() bool { return c.Alone || c.Hold > 0 || c.IsDated() }

// Decides reports whether c is to be decided. If not, it is one of package owner's operations.
func (c *Charge) Decides() bool {
	return c.Op.MayDeny() || c.Op == count.OpCheck || c.Op == count.OpRecord
}

// Prepares reports whether c is a take that is to be committed or aborted.
func (c *Charge) Prepares() bool { return c.Prepare != (store.EventID{}) && c.Op != owner.OpAbort }

// DatedError means that the event of a charge, which was dated before it was sent, is not later than a reset or is too old to
// be counted, or that its id can't be used any more. None of its units count.
type DatedError struct{ After store.Instant } // the reset; 0: none is known

// TooEarly reports whether err is a DatedError.
func TooEarly(err error) bool {
	_, ok := errors.AsType[*DatedError](err)
	return ok
}

// Error returns the reason.
func (*DatedError) Error() string { return "its event must be dated later, under another id" }

// Is makes e an ErrOverloaded for callers that don't try again.
func (*DatedError) Is(target error) bool { return target == store.ErrOverloaded }
