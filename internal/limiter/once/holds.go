package once

import (
	"container/heap"
	"context"
	"iter"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reservations are the holds that this process must end by a write. Units that are held in counters and buckets are given
// back when their time is over, or when the process stops, unless they were settled. Before they are given back or
// recorded, the reservation is claimed, and the first claim wins, on any instance. If this process dies, the units stay
// counted until their window ends or their bucket drains. Holds in logs end by themselves.
type Reservations struct {
	claims  *Scopes
	set     *demand.Settings
	instant func() (store.Instant, error)                                   // returns an error if this instance's clock is wrong
	back    func(ctx context.Context, t *Token, plans []*demand.Plan) error // gives held units back
	sooner  chan struct{}                                                   // receives a signal when a new hold is the first to end

	mu    sync.Mutex
	queue holdQueue
	known map[store.EventID]*hold // those in the queue, by the ID of their token's first entry
}

// hold is one reservation that this process must end.
type hold struct {
	token *Token
	plans []*demand.Plan // one for each entry of the token
	over  time.Time      // the end of its time, by the monotonic clock, which the engine's options don't change
	due   time.Time      // when it must be ended; later than over after a failure
	place int            // its index in the queue
}

// Bounds of a reservation's length.
const (
	MinReserve = time.Millisecond
	MaxReserve = time.Hour
)

// Bounds of the ends of reservations.
const (
	// MaxReserved bounds the reservations that a process must end itself, each of 500 bytes to 4 KiB.
	MaxReserved = 1 << 16
	// holdEnders is the number of reservations that are ended at the same time.
	holdEnders = 32
	// endAgain is the wait before another attempt to end a hold, if the clock was wrong.
	endAgain = time.Second
	// lastEnds is the timeout for ending all holds when the engine ends.
	lastEnds = time.Second
)

// NewReservations returns an empty Reservations. It calls back to give held units back, but not while instant returns an
// error, because this instance's clock is wrong.
func NewReservations(
	claims *Scopes, set *demand.Settings, instant func() (store.Instant, error), back func(context.Context, *Token, []*demand.Plan) error,
) *Reservations {
	return &Reservations{
		claims: claims, set: set, instant: instant, back: back, sooner: make(chan struct{}, 1), known: make(map[store.EventID]*hold),
	}
}

// Full reports whether there is no room for another hold.
func (r *Reservations) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) >= MaxReserved
}

// EndLater queues the end of reservation t, of units held for charges, after a time. It does nothing if all holds end by
// themselves.
func (r *Reservations) EndLater(t *Token, charges []demand.Charge, after time.Duration) {
	over := time.Now().Add(after)
	h := &hold{token: t, over: over, due: over}
	endsItself := true
	for i := range charges {
		if c := &charges[i]; c.Decision.Recorded == count.RecordedYes && c.Decision.Entry != (count.Entry{}) {
			h.plans = append(h.plans, c.Plan)
			endsItself = endsItself && c.Plan.EndsItself()
		}
	}
	if !endsItself {
		r.push(h)
	}
}

func (r *Reservations) push(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.queue, h)
	r.known[h.token.Entries[0].ID] = h
	if h.place == 0 {
		select {
		case r.sooner <- struct{}{}:
		default:
		}
	}
}

// Settled removes reservation t, because its units were settled or released.
func (r *Reservations) Settled(t *Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[t.Entries[0].ID]; h != nil {
		heap.Remove(&r.queue, h.place)
		delete(r.known, t.Entries[0].ID)
	}
}

// Run ends holds when they are due. When ctx ends, it ends all others, within lastEnds.
func (r *Reservations) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
		case <-r.sooner:
		case <-ctx.Done():
			continue
		}
		bounded.Each(holdEnders, r.take(ctx, time.Now), func(h *hold) {
			if ctx.Err() != nil { // ctx ended while h waited for its turn
				r.push(h)
				return
			}
			r.end(context.WithoutCancel(ctx), h, false)
		})
		timer.Reset(r.next())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEnds)
	defer cancel()
	all := func() time.Time { return time.Now().Add(2 * MaxReserve) }
	bounded.Each(holdEnders, r.take(ctx, all), func(h *hold) { r.end(ctx, h, true) })
}

// next returns the time until the first hold is due, or MaxReserve if there is none.
func (r *Reservations) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return MaxReserve
	}
	return time.Until(r.queue[0].due)
}

// take removes the holds that are due at the time that by returns from the queue, one after the other, until ctx ends.
func (r *Reservations) take(ctx context.Context, by func() time.Time) iter.Seq[*hold] {
	return func(yield func(*hold) bool) {
		for ctx.Err() == nil {
			h := r.pop(by())
			if h == nil || !yield(h) {
				return
			}
		}
	}
}

func (r *Reservations) pop(by time.Time) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.queue[0].due.After(by) {
		return nil
	}
	h := heap.Pop(&r.queue).(*hold)
	delete(r.known, h.token.Entries[0].ID)
	return h
}

// end gives h's units back, unless its reservation was settled: all of them if early is true, otherwise those that don't
// end by themselves. If the claim fails, the reservation may have been settled, and the units stay counted.
func (r *Reservations) end(ctx context.Context, h *hold, early bool) {
	if _, err := r.instant(); err != nil { // units that can't be given back now must not be claimed
		if !early && time.Since(h.over) < MaxReserve { // after that, the claim of a record may be forgotten
			h.due = time.Now().Add(endAgain)
			r.push(h)
		}
		return
	}
	ends, plans := &Token{Kind: h.token.Kind, Ends: h.token.Ends}, []*demand.Plan(nil)
	for i, p := range h.plans {
		if early || !p.EndsItself() {
			ends.Entries, plans = append(ends.Entries, h.token.Entries[i]), append(plans, p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.set.StoreTimeout)
	defer cancel()
	if first, err := r.claims.About(h.plans).Reservation(ctx, h.token, ReservationOver, nil); err == nil && first.What == ReservationOver {
		_ = r.back(ctx, ends, plans)
	}
}

// holdQueue is a heap of holds, with the first to end on top.
type holdQueue []*hold

// Len returns the number of holds.
func (q holdQueue) Len() int { return len(q) }

// Less reports whether the hold at i is due before the hold at j.
func (q holdQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap exchanges two holds.
func (q holdQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push appends a *hold.
func (q *holdQueue) Push(h any) {
	one := h.(*hold)
	one.place = len(*q)
	*q = append(*q, one)
}

// Pop removes the last hold.
func (q *holdQueue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return h
}
