package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// room bounds what is not written behind yet. Who comes when there is none waits for what is
// being written, first come first, if the store takes it: so callers come as fast as it is
// written, and nobody is refused for what the next few milliseconds will have written. The zero
// value has all its room.
type room struct {
	keys   atomic.Int64 // that are not written or read yet, and places kept for who was called in
	events atomic.Int64 // that are not written yet

	queued atomic.Int64 // how many wait
	mu     sync.Mutex
	places []chan struct{} // of those who wait, in the order in which they came; closed when there is room
	wrote  time.Time       // when something was written last
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

// enter returns whether the caller had to wait and so has a place, which is to be given back by
// settle, and an error where there is no room, and none to be expected within atMost.
func (r *room) enter(ctx context.Context, atMost time.Duration) (waited bool, err error) {
	if r.left() > 0 && r.queued.Load() == 0 {
		return false, nil
	}
	place := r.queue(atMost)
	if place == nil {
		return false, r.none()
	}
	if waitFor(place, min(atMost, roomIsNear)) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, atMost-roomIsNear)
	defer cancel()
	select {
	case <-place:
	case <-ctx.Done():
		if r.giveUp(place) {
			return false, fmt.Errorf("%w: %w", r.none(), ctx.Err())
		}
	}
	return true, nil
}

// waitFor reports whether done is closed within atMost.
func waitFor(done <-chan struct{}, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// left returns for how many callers more there is room.
func (r *room) left() int {
	if r.events.Load() >= maxUnsyncedEvents {
		return 0
	}
	return max(0, maxUnsyncedKeys-int(r.keys.Load()))
}

// queue returns what is closed when there is room. It is nil where nothing was written for so
// long that nothing may be soon, or where others enough wait.
func (r *room) queue(silence time.Duration) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.places) >= maxRoomWaiting || time.Since(r.wrote) >= silence {
		return nil
	}
	place := make(chan struct{})
	r.places = append(r.places, place)
	r.callIn() // what left meanwhile called in nobody
	return place
}

// giveUp takes place out of those that wait; false where it has room.
func (r *room) giveUp(place chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.places, place)
	if i < 0 {
		return false
	}
	r.places = slices.Delete(r.places, i, i+1)
	r.callIn()
	return true
}

// settle gives back the places of so many who waited: what they counted has its own.
func (r *room) settle(places int) {
	if places == 0 {
		return
	}
	r.keys.Add(-int64(places))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.callIn()
}

// leave notes that a key does not wait any more, nor do so many events of it, and whether that
// is because the store took them: then others may come.
func (r *room) leave(events int, written bool) {
	r.keys.Add(-1)
	r.events.Add(-int64(events))
	if !written {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = time.Now()
	r.callIn()
}

// callIn has those come that wait and for whom there is room, and keeps a place for each. The
// lock is held.
func (r *room) callIn() {
	n := min(len(r.places), r.left())
	r.keys.Add(int64(n))
	for _, place := range r.places[:n] {
		close(place)
	}
	r.places = slices.Delete(r.places, 0, n)
	r.queued.Store(int64(len(r.places)))
}

func (r *room) none() error {
	return fmt.Errorf("%w: %w: %d keys with %d events wait to be written to the store",
		ErrOverloaded, ErrNotStored, r.keys.Load(), r.events.Load())
}
