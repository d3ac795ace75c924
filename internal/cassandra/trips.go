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

// trips has requests of one kind, for different keys, share trips to Cassandra: ten rows in one
// request cost it a third of what they cost in ten. A request goes at once, and alone, unless
// another trip is under way in its lane. Requests that come meanwhile wait, and go together as
// soon as no trip is under way, they fill one, or tripPatience is over. So a lone request waits
// for no other, and the busier a node is the fuller the trips.
type trips[R any] struct {
	send    func(context.Context, lane, []*rider[R]) // answers every rider of a trip; it must not panic
	most    int                                      // keys in a trip
	timeout time.Duration                            // of a trip
	traced  bool                                     // trips are parts of the traces of riders

	mu    sync.Mutex
	roads map[lane]*road[R]
}

// lane is what requests must have in common to share a trip.
type lane struct {
	node  string // host id of the node that they are sent to first
	span  store.Span
	level gocql.Consistency
	then  gocql.Consistency // the level of the read that follows a write
	reach int               // how far back they read, to a power of two: a read further back would walk over expired rows
}

// road is the trips of one lane, and the requests that wait for them.
type road[R any] struct {
	underWay int
	waiting  []*rider[R]
	parts    int         // of those that wait
	patience *time.Timer // that of the first that waits, or of one that is gone
	waits    bool        // patience is running
}

// rider is a request that waits for its trip, or is on it.
type rider[R any] struct {
	request R
	ctx     context.Context // whose trace the trip is part of; nil: no trace
	parts   int             // how much of a trip it takes
	since   time.Time
	err     error
	done    chan struct{} // closed when it is answered; nil: told is called
	told    func(*rider[R])
}

// answered tells the caller of r.
func (r *rider[R]) answered() {
	if r.told != nil {
		r.told(r)
	} else {
		close(r.done)
	}
}

// Bounds of trips.
const (
	// tripsUnderWay is how many full trips go at the same time to one node, for one table at
	// one level: enough to keep a node's cores busy.
	tripsUnderWay = 4
	// tripPatience is how long a request waits at most: a few round trips, so that a node
	// which does not answer holds up those that it was asked for, and no others.
	tripPatience = 10 * time.Millisecond
	// maxWritten is how many partitions a batch may have before Cassandra warns.
	maxWritten = 10
	// maxRead is how many keys a read may have; Cassandra minds none. 25 at a time cost the
	// service a sixth less of a take than 10, and more keep the first waiting.
	maxRead = 25
	// maxTripParts is how many rows of some 100 bytes stay under 4 KiB; Cassandra warns of
	// batches over 5.
	maxTripParts = 40
	// maxTripWaiting bounds a lane: beyond, waiting would outlast the store timeout.
	maxTripWaiting = 1 << 14
)

// do has r answered, by calling alone if it can go at once. The error wraps store.ErrNotStored
// if r was not sent.
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

// enter returns the rider for a request that has to wait, nil for one that may go.
func (t *trips[R]) enter(ctx context.Context, l lane, r R, parts int) (*rider[R], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.road(l)
	if on.underWay == 0 {
		on.underWay++
		return nil, nil
	}
	if len(on.waiting) >= maxTripWaiting {
		return nil, errTooManyWait
	}
	mine := &rider[R]{request: r, ctx: ctx, parts: parts, since: time.Now(), done: make(chan struct{})}
	on.waiting = append(on.waiting, mine)
	on.parts += parts
	t.setOff(l, on)
	return mine, nil
}

// doAll has riders answered, and calls told of each. Unlike in do, the first one waits for the
// others instead of going alone.
func (t *trips[R]) doAll(l lane, riders []*rider[R]) {
	if !t.enterAll(l, riders) {
		for _, r := range riders {
			r.err = errTooManyWait
			r.answered()
		}
	}
}

func (t *trips[R]) enterAll(l lane, riders []*rider[R]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.road(l)
	if len(on.waiting)+len(riders) > maxTripWaiting {
		return false
	}
	now := time.Now()
	for _, r := range riders {
		r.since = now
		on.parts += r.parts
	}
	on.waiting = append(on.waiting, riders...)
	t.setOff(l, on)
	return true
}

var errTooManyWait = fmt.Errorf("%w: %w: %d requests wait for one node", store.ErrNotStored, store.ErrOverloaded, maxTripWaiting)

// road returns l's, made if there is none. The lock is held.
func (t *trips[R]) road(l lane) *road[R] {
	if t.roads == nil {
		t.roads = make(map[lane]*road[R])
	}
	on := t.roads[l]
	if on == nil {
		on = new(road[R])
		t.roads[l] = on
	}
	return on
}

// setOff sends off the requests that may go, and has the others sent off in time.
func (t *trips[R]) setOff(l lane, on *road[R]) {
	t.goOn(l, on)
	if len(on.waiting) > 0 {
		t.wait(l, on)
	}
}

// goOn sends off waiting requests, as long as they may go.
func (t *trips[R]) goOn(l lane, on *road[R]) {
	for len(on.waiting) > 0 && (on.underWay == 0 || t.full(on) && on.underWay < tripsUnderWay) {
		t.sendOff(l, on)
	}
}

// full reports whether the waiting requests of a road fill a trip.
func (t *trips[R]) full(on *road[R]) bool {
	return len(on.waiting) >= t.most || on.parts >= maxTripParts
}

// end notes that a trip is over, and sends off those that wait.
func (t *trips[R]) end(l lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.roads[l]
	on.underWay--
	t.goOn(l, on)
}

// depart sends off the requests that have waited for tripPatience, and comes back for the others.
func (t *trips[R]) depart(l lane, on *road[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for len(on.waiting) > 0 && now.Sub(on.waiting[0].since) >= tripPatience {
		t.sendOff(l, on)
	}
	on.waits = len(on.waiting) > 0
	if on.waits {
		on.patience.Reset(on.waiting[0].since.Add(tripPatience).Sub(now))
	}
}

// wait has on departed when the patience of the first that waits is over. One timer does
// for all: it runs on when those that it was set for are gone.
func (t *trips[R]) wait(l lane, on *road[R]) {
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

// leave takes mine out of those that wait; false when it is on its way.
func (t *trips[R]) leave(l lane, mine *rider[R]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.roads[l]
	i := on.index(mine)
	if i < 0 {
		return false
	}
	on.waiting = append(on.waiting[:i], on.waiting[i+1:]...)
	on.parts -= mine.parts
	return true
}

func (r *road[R]) index(mine *rider[R]) int {
	for i, waiting := range r.waiting {
		if waiting == mine {
			return i
		}
	}
	return -1
}

// sendOff begins a trip of the requests that have waited longest.
func (t *trips[R]) sendOff(l lane, on *road[R]) {
	n, parts := 1, on.waiting[0].parts
	for n < min(len(on.waiting), t.most) && parts+on.waiting[n].parts <= maxTripParts {
		parts += on.waiting[n].parts
		n++
	}
	trip := append([]*rider[R](nil), on.waiting[:n]...)
	on.waiting = append(on.waiting[:0], on.waiting[n:]...)
	on.parts -= parts
	on.underWay++
	go func() {
		defer t.end(l)
		ctx, cancel := context.WithTimeout(t.ofAll(trip), t.timeout)
		defer cancel()
		t.send(ctx, l, trip)
		for _, r := range trip {
			r.answered()
		}
	}()
}

// ofAll returns a context that is that of all riders of a trip, and ends with none of theirs.
func (t *trips[R]) ofAll(trip []*rider[R]) context.Context {
	if !t.traced || !slices.ContainsFunc(trip, func(r *rider[R]) bool { return tracing.Sampled(r.ctx) }) {
		return context.Background()
	}
	calls := make([]context.Context, len(trip))
	for i, r := range trip {
		calls[i] = r.ctx
	}
	return tracing.Together(context.Background(), calls)
}
