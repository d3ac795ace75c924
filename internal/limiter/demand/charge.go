package demand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Target is one identifier under one policy: where it is counted.
type Target struct {
	Plan *Plan
	Key  store.Key   // under the key that is written with
	Cell store.Key   // under which its buckets are, where they are decided apart
	Old  []store.Key // under those that are read as well, while the hash key changes
}

// Of returns the target of id.
func (p *Plan) Of(id keys.Identifier) Target {
	var t Target
	p.Locate(&t, id)
	return t
}

// Locate makes t, which is zero, the target of id.
func (p *Plan) Locate(t *Target, id keys.Identifier) {
	t.Plan, t.Key = p, p.Keys[0].Of(id)
	if p.ByKey != nil {
		t.Plan = p.At(t.Key)
	}
	if len(p.Keys) > 1 || len(p.Parts) > 0 {
		t.locateOthers(id)
	}
}

// locateOthers adds to t, of id, the keys that it has beside the first.
func (t *Target) locateOthers(id keys.Identifier) {
	for _, keys := range t.Plan.Keys[1:] {
		t.Old = append(t.Old, keys.Of(id))
	}
	for _, part := range t.Plan.Parts {
		if part.Cell {
			t.Cell = part.Keys[0].Of(id)
		}
	}
}

// At returns the plan that decides for key: p, but for the identifiers that a limit of p has a
// number of its own for. It goes by the key alone, which is all that an owner is told.
func (p *Plan) At(key store.Key) *Plan {
	if own := p.ByKey[key]; own != nil {
		return own
	}
	return p
}

// As returns t under another plan of its policy, under which there may be other keys.
func (t Target) As(p *Plan) Target {
	t.Plan = p
	if p.Cell && p.Places != nil {
		t.Key = t.Cell
	}
	if len(p.Keys) == 1 {
		t.Old = nil
	}
	return t
}

// Settling returns the write by which n's event, which was held for t, stays. t keeps events.
func (t *Target) Settling(n *count.Entry) *store.Write {
	return &store.Write{
		Key: t.Key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites, Settle: true,
		Events: []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}},
	}
}

// Removal returns the write by which t's log lacks events.
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
	Derived  bool          // its caller did not ask for it: a policy brought it along

	Refused policy.Reason // the rule about numbers that denies it, unless an override allows it; empty: none does

	Marks []Mark // what a confirmation of its call makes known
	Quiet bool   // its decision is told later, once it is the last one

	Placed bool // its event may have been written to a log, whether it counts or not

	Right owner.Right // by which it is decided; nil: nobody owns keys

	Prepare store.EventID // under which it is prepared, to be committed or aborted; zero: it stays
	AtOnce  bool          // it is not to wait for other calls: the error wraps counted.ErrInDoubt then
	Asked   bool          // somebody was asked to decide it
	Owner   owner.Peer    // who was; nil: this instance

	MayBeginAnew bool // its call may be decided anew by a later version of the policies

	Memory any // of who decides it alone, to be used again; nil: it is to be found

	Decision count.Decision
	Err      error
}

// Mark is what a confirmation makes known: a part of an identifier, as the target that counts it then.
type Mark struct{ Target }

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

// CanAbort reports whether c does not count if others deny.
func (c *Charge) CanAbort() bool { return c.Plan.Count != policy.CountAll }

// Request is one caller's wish while it is decided together with others.
type Request struct {
	Op       count.Op
	Cost     int64
	Hold     time.Duration // for how long the units are held, unless they are settled; 0: they stay
	Alone    bool          // travels with no other, as it holds other keys as well
	ID       store.EventID // of its event, dated; zero: one is made
	Decision count.Decision
	Without  count.Decision // what it would be if nothing were counted; filled in if alone
	Err      error
	Denied   bool        // answered by a denial, which stands if another attempt fails
	Under    *Plan       // by which it is decided
	Right    owner.Right // by which it is decided; nil: nobody owns keys

	Prepare store.EventID   // of a take, under which it is prepared; of an abort, what is aborted; zero: it stays
	Fewer   <-chan struct{} // closed when it can be asked again, if it is in doubt

	Ctx   context.Context // its caller's; nil unless what is done together is told
	Until time.Time       // when its caller gives up; zero: never
	Turn  chan []*Request // receives the batch to lead, or is closed when answered
}

// EndsAfter returns when a hold that begins at now ends; 0 for none.
func EndsAfter(now store.Instant, hold time.Duration) store.Instant {
	if hold == 0 {
		return 0
	}
	return now.Add(hold)
}

// Prepares reports whether r is a take that is to be committed or aborted.
func (r *Request) Prepares() bool { return r.Prepare != (store.EventID{}) && r.Op != owner.OpAbort }

// ErrSuperseded is a call that was not decided, and of which nothing counts: a later version of the policies is
// in force.
var ErrSuperseded = fmt.Errorf("%w: a later version of the policies is in force", store.ErrUnavailable)

// BeginsAnew reports whether err is that of a call that is to be decided anew.
func BeginsAnew(err error) bool {
	if err == nil { // so that the usual case allocates nothing
		return false
	}
	failed := (*count.StoreError)(nil)
	return errors.As(err, &failed) && failed.Recorded == count.RecordedNo && errors.Is(err, ErrSuperseded)
}

// DatedError is a request whose event was dated by its maker, and not late enough:
// a reset has forgotten it, and nothing of it counts.
type DatedError struct{ After store.Instant }

// TooEarly reports whether err is a DatedError.
func TooEarly(err error) bool {
	if err == nil { // so that the usual case allocates nothing
		return false
	}
	var early *DatedError
	return errors.As(err, &early)
}

// Error says so.
func (*DatedError) Error() string { return "the key was reset later than its event is dated" }

// Is makes it an ErrOverloaded for whoever doesn't try again.
func (*DatedError) Is(target error) bool { return target == store.ErrOverloaded }
