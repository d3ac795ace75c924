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

// Reservations are the holds of this process that don't end by themselves: those in
// counters and buckets are given back when their time is over, unless they were settled.
// An ordinary stop gives them back before that. An end and a record both make the
// reservation's claim, and the first one has the say, on whatever instance. Should this
// process die, the units stay charged until their window ends or their bucket drains.
// Holds in logs need nobody to end them.
type Reservations struct {
	claims  *Scopes
	set     *demand.Settings
	instant func() (store.Instant, error) // the error says that this instance's clock is wrong
	back    func(ctx context.Context, t *Token, plans []*demand.Plan) error
	sooner  chan struct{} // holds one token when another hold is the first to end

	mu    sync.Mutex
	queue holdQueue
	known map[store.EventID]*hold // those in the queue, by their reservation's first unit
}

// hold is one reservation that this process has to end.
type hold struct {
	token *Token
	plans []*demand.Plan // one for each entry of the token
	over  time.Time      // when its time is over, by the monotonic clock: no option of the engine can turn it
	due   time.Time      // when to end it: later, if that could not be done
	place int            // in the queue
}

// Bounds of how long a reservation holds.
const (
	MinReserve = time.Millisecond
	MaxReserve = time.Hour
)

// Bounds of what is ended.
const (
	// MaxReserved bounds the reservations that a process has to end itself, each of
	// 500 bytes to 4 KiB.
	MaxReserved = 1 << 16
	// holdEnders is how many are ended at the same time.
	holdEnders = 32
	// endAgain is when a hold is ended that could not be, as the clock is wrong.
	endAgain = time.Second
	// lastEnds is how long ending all holds may take when the engine ends.
	lastEnds = time.Second
)

// NewReservations returns none. What is held is given back by back, unless instant says that this instance's
// clock is wrong.
func NewReservations(
	claims *Scopes, set *demand.Settings, instant func() (store.Instant, error), back func(context.Context, *Token, []*demand.Plan) error,
) *Reservations {
	return &Reservations{
		claims: claims, set: set, instant: instant, back: back, sooner: make(chan struct{}, 1), known: make(map[store.EventID]*hold),
	}
}

// Full reports whether no other hold can be ended.
func (r *Reservations) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) >= MaxReserved
}

// EndLater ends the reservation t, of what was held for charges, when its time is over.
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

// Settled forgets the reservation t: there is nothing to end.
func (r *Reservations) Settled(t *Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[t.Entries[0].ID]; h != nil {
		heap.Remove(&r.queue, h.place)
		delete(r.known, t.Entries[0].ID)
	}
}

// Run ends holds in their time until ctx ends, and then those that are left, as far as
// lastEnds allows.
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
			if ctx.Err() != nil { // while it waited for its turn
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

// next returns how long the first hold has to wait for its end, or long if there is none.
func (r *Reservations) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return MaxReserve
	}
	return time.Until(r.queue[0].due)
}

// take takes the holds that are due by then, one after the other, while ctx lasts.
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

// end gives back what h holds, unless its reservation was settled: at its end what does
// not end by itself, early all of it. In doubt whether it was settled, the units stay
// charged.
func (r *Reservations) end(ctx context.Context, h *hold, early bool) {
	if _, err := r.instant(); err != nil { // what can't be given back now must not be claimed
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
	if first, err := r.claims.About(h.plans).Reservation(ctx, h.token, ReservationOver); err == nil && first {
		_ = r.back(ctx, ends, plans)
	}
}

// holdQueue is a heap of holds, with the first to end on top.
type holdQueue []*hold

// Len returns how many there are.
func (q holdQueue) Len() int { return len(q) }

// Less reports whether the one at i ends before the one at j.
func (q holdQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap exchanges two.
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

// Pop takes out the last one.
func (q *holdQueue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return h
}
