package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Tenure is the right to decide for a slice, or in mode Shared for all slices. What is
// remembered of keys belongs to one tenure and means nothing in another.
//
// Whoever admits something does so in this order: its unit is acknowledged by the store;
// Verify then returns nil; Ended is then false.
type Tenure struct {
	Slice int   // allSlices in mode Shared; guestOf for a guest's
	Since int64 // the number of the view that it began with

	seat   *seat
	began  time.Time
	calls  atomic.Int64 // that are being decided
	closed atomic.Bool  // no further call begins
	ended  atomic.Bool  // nothing is admitted any more
	known  knowledge
}

// What a tenure is for that is not for one slice.
const (
	allSlices = -1 // mode Shared: every member decides for every slice
	guestOf   = -2 // what a member may do with keys that others own, once their owners know
)

// Shared reports whether every member decides for the slice.
func (t *Tenure) Shared() bool { return t.Slice == allSlices }

// Owned reports whether this member alone decides for the slice.
func (t *Tenure) Owned() bool { return t.Slice >= 0 }

// Began returns when this member began to decide, by its monotonic clock.
func (t *Tenure) Began() time.Time { return t.began }

// Ended reports whether the tenure is over: nothing may be admitted by it any more.
func (t *Tenure) Ended() bool { return t.ended.Load() }

// Leave ends a call that began with Enter.
func (t *Tenure) Leave() { t.calls.Add(-1) }

// Verify reads this member's own row, and returns nil if it says that the member is in. The
// read begins after Verify was called. It is one for all who wait for the next. ErrOut says
// that nothing may be admitted; any other error that nobody knows, and that it can be asked
// again.
func (t *Tenure) Verify(ctx context.Context) error {
	if t.Ended() {
		return ErrOut
	}
	if err := t.seat.fence.Verify(ctx); err != nil {
		return err
	}
	if t.Ended() {
		return ErrOut
	}
	return nil
}

// Fence returns what Verify asks: the same for all tenures of a membership. Who asks it itself looks then
// whether the tenure has ended.
func (t *Tenure) Fence() *Fence { return t.seat.fence }

// Verified returns when the latest read of this member's own row began that said that the member is in, by
// its monotonic clock; the zero Time: none did, or the tenure is over.
func (t *Tenure) Verified() time.Time {
	seen := t.seat.fence.seen.Load()
	if seen == nil || t.Ended() {
		return time.Time{}
	}
	return *seen
}

// ErrOut is a tenure that is over: the slice moved, or the member was set out.
var ErrOut = errors.New("this instance no longer decides for the key")

// enter begins a call. It reports false where no further call begins.
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
