package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// room bounds what is not written behind yet. Who comes when there is none waits for what is
// being written, first come first, if the store takes it: so callers come as fast as it is
// written, and nobody is refused for what the next few milliseconds will have written.
type room struct {
	keysMax int           // maxUnsyncedKeys, but in tests
	silence time.Duration // without a write, after which nobody waits for one
	wake    chan struct{} // of one place: has what waits written before its interval is over

	keys   atomic.Int64 // that are not written or read yet, and places kept for who was called in
	events atomic.Int64 // that are not written yet
	wrote  atomic.Int64 // when something was written last, in nanoseconds after made
	made   time.Time

	queued atomic.Int64 // how many wait
	mu     sync.Mutex
	places []*place  // of those who wait, in the order in which they came
	unused sync.Pool // of *place
}

// place is that of one who waits for room.
type place struct {
	called chan struct{} // of one: there is room
	timer  *time.Timer
}

// Bounds of what waits. Past them nothing is counted in memory: the decision is as if the store
// did not answer.
const (
	maxUnsyncedKeys   = 1 << 16 // of 300 bytes: 20 MiB; no more than tallies remember while they are retried
	maxUnsyncedEvents = 1 << 20 // of 40 bytes: 40 MiB
	// maxRoomWaiting is how many callers wait for room: as many keys as are written in a few
	// hundredths of a second.
	maxRoomWaiting = 512
	// roomIsNear is longer than most of them wait, and how long nobody asks whether their client
	// is still there: to wait for that costs more than the wait.
	roomIsNear = 10 * time.Millisecond
)

func newRoom(o *Options) *room {
	r := &room{keysMax: cmp.Or(o.unsynced, maxUnsyncedKeys), silence: o.StoreTimeout, wake: make(chan struct{}, 1), made: time.Now()}
	r.wrote.Store(-int64(o.StoreTimeout)) // nothing was yet
	return r
}

// left returns for how many callers more there is room.
func (r *room) left() int {
	if r.events.Load() >= maxUnsyncedEvents {
		return 0
	}
	return max(0, r.keysMax-int(r.keys.Load()))
}

// free reports whether there is room, and nobody waits for it.
func (r *room) free() bool { return r.left() > 0 && r.queued.Load() == 0 }

// wait returns once there is room, of which one place is the caller's, to be settled. The error
// says that there is none, and none to be expected within atMost.
func (r *room) wait(ctx context.Context, atMost time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok { // what comes after it takes time as well
		atMost = min(atMost, time.Until(deadline)/2)
	}
	mine := r.queue()
	if mine == nil {
		return r.none()
	}
	defer r.unused.Put(mine)
	if mine.isCalled(nil, min(atMost, roomIsNear)) || mine.isCalled(ctx.Done(), atMost-roomIsNear) || !r.giveUp(mine) {
		return nil
	}
	return fmt.Errorf("%w: %w", r.none(), cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// isCalled waits until p is called, and reports false if it is not within atMost or before done
// is closed.
func (p *place) isCalled(done <-chan struct{}, atMost time.Duration) bool {
	p.timer.Reset(atMost)
	defer p.timer.Stop()
	select {
	case <-p.called:
		return true
	case <-p.timer.C:
	case <-done:
	}
	return false
}

// queue returns a place that is called when there is room. It is nil where nothing was written
// for so long that nothing may be soon, or where others enough wait.
func (r *room) queue() *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.callIn()
	switch {
	case len(r.places) == 0 && r.left() > 0: // it has come in between
	case len(r.places) >= maxRoomWaiting || time.Since(r.made)-time.Duration(r.wrote.Load()) >= r.silence:
		return nil
	}
	mine, ok := r.unused.Get().(*place)
	if !ok {
		mine = &place{called: make(chan struct{}, 1), timer: time.NewTimer(0)}
	}
	r.places = append(r.places, mine)
	r.queued.Store(int64(len(r.places))) // before room is looked for: who leaves looks the other way round
	r.callIn()
	return mine
}

// giveUp takes p out of those that wait; false where it was called.
func (r *room) giveUp(p *place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.places, p)
	if i < 0 {
		<-p.called
		return false
	}
	r.places = slices.Delete(r.places, i, i+1)
	r.callIn()
	return true
}

// come notes that one key more waits to be written. Past half of the room, that is not put off.
func (r *room) come() {
	if int(r.keys.Add(1)) >= r.keysMax/2 {
		r.hurry()
	}
}

// comeEvent notes the same of an event.
func (r *room) comeEvent() {
	if r.events.Add(1) >= maxUnsyncedEvents/2 {
		r.hurry()
	}
}

func (r *room) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// written notes that the store took something.
func (r *room) written() { r.wrote.Store(int64(time.Since(r.made))) }

// leave notes that a key does not wait any more, nor do so many events of it.
func (r *room) leave(events int) {
	r.events.Add(-int64(events))
	r.settle()
}

// settle gives back the place of one who waited: what was counted meanwhile has its own.
func (r *room) settle() {
	r.keys.Add(-1)
	if r.queued.Load() == 0 {
		return // who is about to wait looks again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.callIn()
}

// callIn has those come that wait and for whom there is room, and keeps a place for each. The
// lock is held.
func (r *room) callIn() {
	n := min(len(r.places), r.left())
	r.keys.Add(int64(n))
	for _, p := range r.places[:n] {
		p.called <- struct{}{}
	}
	r.places = slices.Delete(r.places, 0, n)
	r.queued.Store(int64(len(r.places)))
}

func (r *room) none() error {
	return fmt.Errorf("%w: %w: %d keys with %d events wait to be written to the store",
		ErrOverloaded, ErrNotStored, r.keys.Load(), r.events.Load())
}
