package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Tenure is a member's right to decide for a slice, or in mode Shared for all slices. States of keys in memory belong
// to one tenure and must not be used in another.
//
// Before a member admits a call, three things must happen in this order: the store acknowledges the units; Verify,
// called after that, returns nil; Ended then returns false.
type Tenure struct {
	Slice int   // allSlices in mode Shared; guestOf for a guest
	Since int64 // the number of the view with which it began

	membership *membership
	began      time.Time
	calls      atomic.Int64 // being decided
	closed     atomic.Bool  // no further call begins
	ended      atomic.Bool  // it admits nothing any more
	known      knowledge
}

// Values of Tenure.Slice that are not one slice.
const (
	allSlices = -1 // mode Shared: every member decides for every slice
	guestOf   = -2 // a member counts for keys of others, once their owners know
)

// Shared reports whether every member decides for the slice.
func (t *Tenure) Shared() bool { return t.Slice == allSlices }

// Owned reports whether this member alone decides for the slice.
func (t *Tenure) Owned() bool { return t.Slice >= 0 }

// Began returns when the tenure began, by this member's monotonic clock.
func (t *Tenure) Began() time.Time { return t.began }

// Ended reports whether the tenure has ended: nothing may be admitted by it any more.
func (t *Tenure) Ended() bool { return t.ended.Load() }

// Leave ends a call that began with Enter.
func (t *Tenure) Leave() { t.calls.Add(-1) }

// Verify reads this member's own row, and returns nil if it says that the member is in. The read begins after the call
// of Verify; all callers that wait for the next read share it. ErrOut means that nothing may be admitted; after any
// other error it is not known, and Verify may be called again.
func (t *Tenure) Verify(ctx context.Context) error {
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

// Fence returns the fence that Verify uses, the same for all tenures of a membership. A caller that uses it directly
// must then check Ended.
func (t *Tenure) Fence() *Fence { return t.membership.fence }

// Verified returns when the latest read of this member's own row began that found the member in, by its monotonic
// clock; the zero Time if none did, or the tenure has ended.
func (t *Tenure) Verified() time.Time {
	seen := t.membership.fence.seen.Load()
	if seen == nil || t.Ended() {
		return time.Time{}
	}
	return *seen
}

// ErrOut means that a tenure has ended, as the slice moved or the member was set out.
var ErrOut = errors.New("this instance no longer decides for the key")

// enter begins a call. It returns false if the tenure takes no further calls.
func (t *Tenure) enter() bool {
	t.calls.Add(1)
	if t.closed.Load() {
		t.calls.Add(-1)
		return false
	}
	return true
}

func (t *Tenure) end() {
	t.closed.Store(true)
	t.ended.Store(true)
}
