package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Fence reads a member's own row for all calls that are about to admit something. A read serves the calls that asked
// before it began.
type Fence struct {
	read func(ctx context.Context) (in bool, err error)

	lastIn atomic.Pointer[time.Time] // when the latest read began that found the member in; nil: none did

	turn chan struct{} // holds a token while a read is in progress
	mu   sync.Mutex
	next *fenceRead // the read that has not begun
}

// fenceRead is one read of the row.
type fenceRead struct {
	done chan struct{} // closed when it is answered
	err  error
}

// fenceTimeout bounds one read, so that the next one can ask another node.
const fenceTimeout = 250 * time.Millisecond

func newFence(read func(context.Context) (bool, error)) *Fence {
	return &Fence{read: read, turn: make(chan struct{}, 1)}
}

// Verify returns the result of a read that begins after the call: nil if the member is in, ErrOut if it is not, or an
// error of the store, after which it may be in or out.
func (f *Fence) Verify(ctx context.Context) error {
	r, lead := f.join()
	if lead {
		go f.lead(context.WithoutCancel(ctx), r) // other callers may wait for it longer than this one
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteIn notes that a read that began at this time found the member in.
func (f *Fence) noteIn(began time.Time) {
	if last := f.lastIn.Load(); last == nil || began.After(*last) {
		f.lastIn.Store(&began)
	}
}

// join returns the next read, which has not begun, and whether the caller must make it.
func (f *Fence) join() (r *fenceRead, lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next != nil {
		return f.next, false
	}
	f.next = &fenceRead{done: make(chan struct{})}
	return f.next, true
}

// lead makes the read r once the one before it is answered.
func (f *Fence) lead(ctx context.Context, r *fenceRead) {
	f.turn <- struct{}{}
	f.mu.Lock()
	f.next = nil // this read begins now, so it does not serve later callers
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	began := time.Now()
	in, err := f.read(ctx)
	if err == nil && !in {
		err = ErrOut
	}
	if err == nil {
		f.noteIn(began)
	}
	r.err = err
	<-f.turn
	close(r.done)
}
