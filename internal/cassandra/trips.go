package cassandra

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// trips batches requests of one kind, for different keys, into trips to Cassandra: for it, ten rows in one request cost a
// third of ten requests. A request is sent at once, and alone, unless a trip is in progress in its lane. Requests that arrive
// meanwhile wait. They are sent together as soon as no trip is in progress, they fill a trip, or the first of them has waited
// for tripPatience. So a lone request does not wait, and the busier a node is, the fuller are its trips.
type trips[R any] struct {
	send    func(context.Context, lane, []*item[R]) // sends a trip and sets its items' results; it must not panic
	most    int                                     // most keys in a trip
	timeout time.Duration                           // timeout of a trip
	traced  bool                                    // trips are parts of their items' traces

	mu     sync.Mutex
	queues map[lane]*queue[R]
}

// lane has the properties that requests must share to share a trip.
type lane struct {
	node  string // host id of the node to which they are sent first
	span  store.Span
	level gocql.Consistency
	then  gocql.Consistency // the level of the read that follows a write
	tally bool              // they read running totals
	reach int               // how far back they read, as a power of two, so that no short read walks over the rows of a long one
}

// queue has the trips of one lane, and the requests that wait for them.
type queue[R any] struct {
	underWay int // number of trips in progress
	waiting  []*item[R]
	parts    int         // number of parts of the waiting requests
	patience *time.Timer // the timer of the first waiting request, or of an earlier one
	waits    bool        // the timer is running
}

// item is a request that waits for its trip, or is part of one.
type item[R any] struct {
	request R
	ctx     context.Context // the context whose trace includes the trip; nil: no trace
	parts   int             // its size, in parts of a trip
	since   time.Time
	err     error
	done    chan struct{} // closed when it is answered; nil: onDone is called instead
	onDone  func(*item[R])
}

// answered notifies the caller of r.
func (r *item[R]) answered() {
	if r.onDone != nil {
		r.onDone(r)
	} else {
		close(r.done)
	}
}

// Bounds of trips.
const (
	// tripsUnderWay is the most concurrent full trips in a lane. They suffice to keep a node's cores busy.
	tripsUnderWay = 4
	// tripPatience is the longest time that a request waits for trips in progress. It is a few round trips long, so that a node
	// that does not answer delays only its own requests.
	tripPatience = 10 * time.Millisecond
	// maxWritten is the most partitions in a batch about which Cassandra does not warn.
	maxWritten = 10
	// maxRead is the most keys in a read, for which Cassandra has no limit. With 25 keys a take costs the service a sixth less
	// than with 10. With more, the first request would wait longer.
	maxRead = 25
	// maxTripParts rows of some 100 bytes stay under 4 KiB. Cassandra warns of batches of over 5 KiB.
	maxTripParts = 40
	// maxTripWaiting bounds the waiting requests of a lane. Further ones would wait longer than the store timeout.
	maxTripWaiting = 1 << 14
)

// do sends r and waits for its answer. If r can be sent at once, it calls alone. The error wraps store.ErrNotStored if
// r was not sent.
func (t *trips[R]) do(ctx context.Context, l lane, r R, parts int, alone func(context.Context) error) error {
	mine, err := t.enter(ctx, l, r, parts)
	switch {
	case err != nil:
		return err
	case mine == nil:
		defer t.end(l)
		return alone(ctx)
	}
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		if t.leave(l, mine) {
			return fmt.Errorf("%w: %w before it was sent", store.ErrNotStored, ctx.Err())
		}
		return ctx.Err()
	}
}

// enter returns the item for a request that must wait, nil for one that may be sent.
func (t *trips[R]) enter(ctx context.Context, l lane, r R, parts int) (*item[R], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.queue(l)
	if on.underWay == 0 {
		on.underWay++
		return nil, nil
	}
	if len(on.waiting) >= maxTripWaiting {
		return nil, errTooManyWait
	}
	mine := &item[R]{request: r, ctx: ctx, parts: parts, since: time.Now(), done: make(chan struct{})}
	on.waiting = append(on.waiting, mine)
	on.parts += parts
	t.setOff(l, on)
	return mine, nil
}

// doAll sends items, and calls the onDone of each once it is answered. Unlike do, it does not send the first item alone, but
// together with the others.
func (t *trips[R]) doAll(l lane, items []*item[R]) {
	if !t.enterAll(l, items) {
		for _, r := range items {
			r.err = errTooManyWait
			r.answered()
		}
	}
}

func (t *trips[R]) enterAll(l lane, items []*item[R]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.queue(l)
	if len(on.waiting)+len(items) > maxTripWaiting {
		return false
	}
	now := time.Now()
	for _, r := range items {
		r.since = now
		on.parts += r.parts
	}
	on.waiting = append(on.waiting, items...)
	t.setOff(l, on)
	return true
}

var errTooManyWait = fmt.Errorf("%w: %w: %d requests wait for one node", store.ErrNotStored, store.ErrOverloaded, maxTripWaiting)

// queue returns the queue of l, a new one if there is none. The caller holds the lock.
func (t *trips[R]) queue(l lane) *queue[R] {
	if t.queues == nil {
		t.queues = make(map[lane]*queue[R])
	}
	on := t.queues[l]
	if on == nil {
		on = new(queue[R])
		t.queues[l] = on
	}
	return on
}

// setOff sends the requests that may be sent, and sets the timer for the others.
func (t *trips[R]) setOff(l lane, on *queue[R]) {
	t.sendReady(l, on)
	if len(on.waiting) > 0 {
		t.wait(l, on)
	}
}

// sendReady sends waiting requests as long as they may be sent.
func (t *trips[R]) sendReady(l lane, on *queue[R]) {
	for len(on.waiting) > 0 && (on.underWay == 0 || t.full(on) && on.underWay < tripsUnderWay) {
		t.beginTrip(l, on)
	}
}

// full reports whether the waiting requests of a queue fill a trip.
func (t *trips[R]) full(on *queue[R]) bool {
	return len(on.waiting) >= t.most || on.parts >= maxTripParts
}

// end notes that a trip has ended, and sends waiting requests.
func (t *trips[R]) end(l lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.queues[l]
	on.underWay--
	t.sendReady(l, on)
}

// depart sends the requests that have waited for tripPatience, and sets the timer for the others.
func (t *trips[R]) depart(l lane, on *queue[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for len(on.waiting) > 0 && now.Sub(on.waiting[0].since) >= tripPatience {
		t.beginTrip(l, on)
	}
	on.waits = len(on.waiting) > 0
	if on.waits {
		on.patience.Reset(on.waiting[0].since.Add(tripPatience).Sub(now))
	}
}

// wait makes depart run when the first waiting request has waited for tripPatience. One timer serves all requests, and goes on
// running if the requests for which it was set have been sent.
func (t *trips[R]) wait(l lane, on *queue[R]) {
	switch {
	case on.waits:
		return
	case on.patience == nil:
		on.patience = time.AfterFunc(tripPatience, func() { t.depart(l, on) })
	default:
		on.patience.Reset(tripPatience)
	}
	on.waits = true
}

// leave removes mine from the waiting requests. It returns false if mine has been sent.
func (t *trips[R]) leave(l lane, mine *item[R]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.queues[l]
	i := slices.Index(on.waiting, mine)
	if i < 0 {
		return false
	}
	on.waiting = slices.Delete(on.waiting, i, i+1)
	on.parts -= mine.parts
	return true
}

// beginTrip begins a trip with the requests that have waited the longest.
func (t *trips[R]) beginTrip(l lane, on *queue[R]) {
	n, parts := 1, on.waiting[0].parts
	for n < min(len(on.waiting), t.most) && parts+on.waiting[n].parts <= maxTripParts {
		parts += on.waiting[n].parts
		n++
	}
	trip := append([]*item[R](nil), on.waiting[:n]...)
	on.waiting = append(on.waiting[:0], on.waiting[n:]...)
	on.parts -= parts
	on.underWay++
	go func() {
		defer t.end(l)
		ctx, cancel := context.WithTimeout(t.tracesOf(trip), t.timeout)
		defer cancel()
		t.send(ctx, l, trip)
		for _, r := range trip {
			r.answered()
		}
	}()
}

// tracesOf returns a context with the traces of all items of a trip. It does not end with any of their contexts.
func (t *trips[R]) tracesOf(trip []*item[R]) context.Context {
	if !t.traced || !slices.ContainsFunc(trip, func(r *item[R]) bool { return tracing.Sampled(r.ctx) }) {
		return context.Background()
	}
	calls := make([]context.Context, len(trip))
	for i, r := range trip {
		calls[i] = r.ctx
	}
	return tracing.Together(context.Background(), calls)
}
