package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Term is a member's right to decide for a slot, or in mode Shared for all slots. States of keys in memory belong
// to one term and must not be used in another.
//
// Before a member admits a call, three things must happen in this order: the store acknowledges the units; Verify,
// called after that, returns nil; Ended then returns false.
type Term struct {
	Slot  int   // allSlots in mode Shared
	Since int64 // the number of the view with which it began

	membership *membership
	began      time.Time
	calls      atomic.Int64 // number of calls being decided
	closed     atomic.Bool  // no further call begins
	ended      atomic.Bool  // it admits nothing any more
	known      knowledge
}

// allSlots is the Term.Slot of mode Shared: every member decides for every slot.
const allSlots = -1

// Shared reports whether every member decides for the slot.
func (t *Term) Shared() bool { return t.Slot == allSlots }

// Owned reports whether this member alone decides for the slot.
func (t *Term) Owned() bool { return t.Slot >= 0 }

// Began returns when the term began, by this member's monotonic clock.
func (t *Term) Began() time.Time { return t.began }

// Ended reports whether the term has ended: nothing may be admitted by it any more.
func (t *Term) Ended() bool { return t.ended.Load() }

// Leave ends a call that began with Enter.
func (t *Term) Leave() { t.calls.Add(-1) }

// Verify reads this member's own row, and returns nil if it says that the member is in. The read begins after the call
// of Verify; all callers that wait for the next read share it. ErrOut means that nothing may be admitted. After any
// other error nothing may be admitted either until another call of Verify returns nil.
func (t *Term) Verify(ctx context.Context) error {
	if t.Ended() {
		return ErrOut
	}
	if err := t.membership.fence.Verify(ctx); err != nil {
		return err
	}
	if t.Ended() {
		return ErrOut
	}
	return nil
}

// Fence returns the fence that Verify uses, the same for all terms of a membership. A caller that uses it directly
// must then check Ended.
func (t *Term) Fence() *Fence { return t.membership.fence }

// Verified returns when the latest read of this member's own row began that found the member in, by its monotonic
// clock; the zero Time if none did, or the term has ended.
func (t *Term) Verified() time.Time {
	last := t.membership.fence.lastIn.Load()
	if last == nil || t.Ended() {
		return time.Time{}
	}
	return *last
}

// ErrOut means that a term has ended, as the slot moved or the member was set out.
var ErrOut = errors.New("this instance no longer decides for the key")

// enter begins a call. It returns false if the term takes no further calls.
func (t *Term) enter() bool {
	t.calls.Add(1)
	if t.closed.Load() {
		t.calls.Add(-1)
		return false
	}
	return true
}

func (t *Term) end() {
	t.closed.Store(true)
	t.ended.Store(true)
}
