package limiter

import (
	"container/heap"
	"context"
	"iter"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// reservations are the holds of this process that don't end by themselves: those in
// counters and buckets are given back when their time is over, unless they were settled.
// An ordinary stop gives them back before that. An end and a record both make the
// reservation's claim, and the first one has the say, on whatever instance. Should this
// process die, the units stay charged until their window ends or their bucket drains.
// Holds in logs need nobody to end them.
type reservations struct {
	engine *Engine
	sooner chan struct{} // holds one token when another hold is the first to end

	mu    sync.Mutex
	queue holdQueue
	known map[store.EventID]*hold // those in the queue, by their reservation's first unit
}

// hold is one reservation that this process has to end.
type hold struct {
	token *token
	plans []*plan   // one for each entry of the token
	over  time.Time // when its time is over, by the monotonic clock: no option of the engine can turn it
	due   time.Time // when to end it: later, if that could not be done
	place int       // in the queue
}

// Bounds of what is ended.
const (
	// maxReserved bounds the reservations that a process has to end itself, each of
	// 500 bytes to 4 KiB.
	maxReserved = 1 << 16
	// holdEnders is how many are ended at the same time.
	holdEnders = 32
	// endAgain is when a hold is ended that could not be, as the clock is wrong.
	endAgain = time.Second
	// lastEnds is how long ending all holds may take when the engine ends.
	lastEnds = time.Second
)

func newReservations(e *Engine) *reservations {
	return &reservations{engine: e, sooner: make(chan struct{}, 1), known: make(map[store.EventID]*hold)}
}

// full reports whether no other hold can be ended.
func (r *reservations) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) >= maxReserved
}

// endLater ends the reservation t, of what was held for charges, when its time is over.
func (r *reservations) endLater(t *token, charges []charge, after time.Duration) {
	over := time.Now().Add(after)
	h := &hold{token: t, over: over, due: over}
	endsItself := true
	for i := range charges {
		if c := &charges[i]; c.decision.Recorded == count.RecordedYes && c.decision.Entry != (count.Entry{}) {
			h.plans = append(h.plans, c.plan)
			endsItself = endsItself && c.plan.EndsItself()
		}
	}
	if !endsItself {
		r.push(h)
	}
}

func (r *reservations) push(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.queue, h)
	r.known[h.token.entries[0].ID] = h
	if h.place == 0 {
		select {
		case r.sooner <- struct{}{}:
		default:
		}
	}
}

// settled forgets the reservation t: there is nothing to end.
func (r *reservations) settled(t *token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[t.entries[0].ID]; h != nil {
		heap.Remove(&r.queue, h.place)
		delete(r.known, t.entries[0].ID)
	}
}

// run ends holds in their time until ctx ends, and then those that are left, as far as
// lastEnds allows.
func (r *reservations) run(ctx context.Context) {
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
func (r *reservations) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return MaxReserve
	}
	return time.Until(r.queue[0].due)
}

// take takes the holds that are due by then, one after the other, while ctx lasts.
func (r *reservations) take(ctx context.Context, by func() time.Time) iter.Seq[*hold] {
	return func(yield func(*hold) bool) {
		for ctx.Err() == nil {
			h := r.pop(by())
			if h == nil || !yield(h) {
				return
			}
		}
	}
}

func (r *reservations) pop(by time.Time) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.queue[0].due.After(by) {
		return nil
	}
	h := heap.Pop(&r.queue).(*hold)
	delete(r.known, h.token.entries[0].ID)
	return h
}

// end gives back what h holds, unless its reservation was settled: at its end what does
// not end by itself, early all of it. In doubt whether it was settled, the units stay
// charged.
func (r *reservations) end(ctx context.Context, h *hold, early bool) {
	if _, err := r.engine.instant(); err != nil { // what can't be given back now must not be claimed
		if !early && time.Since(h.over) < MaxReserve { // after that, the claim of a record may be forgotten
			h.due = time.Now().Add(endAgain)
			r.push(h)
		}
		return
	}
	ends, plans := &token{kind: h.token.kind, ends: h.token.ends}, []*plan(nil)
	for i, p := range h.plans {
		if early || !p.EndsItself() {
			ends.entries, plans = append(ends.entries, h.token.entries[i]), append(plans, p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.engine.opts.StoreTimeout)
	defer cancel()
	if first, err := r.engine.claimsAbout(h.plans).reservation(ctx, h.token, reservationOver); err == nil && first {
		_ = r.engine.giveAllBack(ctx, ends, plans)
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
