package client

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// asked is one call while it waits, travels and is answered.
type asked struct {
	call    Call
	members []byte // of call, as appendMembers makes them
	answer  answer
	err     error // why there is no answer

	ctx    context.Context // of the caller; its values are those of a request that goes alone
	timer  *time.Timer     // of Options.Timeout
	done   chan struct{}   // receives when answer or err is there
	on     *trip           // nil: it waits
	state  atomic.Int32
	before *asked // in the queue
	after  *asked
}

// States of an asked.
const (
	waiting    int32 = iota // in the queue; changed under its lock only
	travelling              // whoever changes it has the say of what becomes of the call
	answered
	left // by its caller, who does not wait any more
)

// queue is what waits for a trip, in the order in which it came. The zero value is empty.
type queue struct {
	first, last *asked
	len         int
}

func (q *queue) push(a *asked) {
	a.before, a.after = q.last, nil
	if q.last == nil {
		q.first = a
	} else {
		q.last.after = a
	}
	q.last = a
	q.len++
}

func (q *queue) remove(a *asked) {
	if a.before == nil {
		q.first = a.after
	} else {
		a.before.after = a.after
	}
	if a.after == nil {
		q.last = a.before
	} else {
		a.after.before = a.before
	}
	a.before, a.after = nil, nil
	q.len--
}

// Bounds of trips.
const (
	// maxWaiting bounds the queue: what waits behind so many is not answered in time.
	maxWaiting = 1 << 16
	// maxTrips is how many requests go at most while earlier ones are late.
	maxTrips = 64
	// latePatience is how long calls wait for a trip to come back: then another one goes, so
	// that a request that takes long, as for a policy whose store stands still, does not hold up
	// those of others.
	latePatience = 10 * time.Millisecond
	// maxAlike is how many calls of one policy and identifier travel together: the service
	// decides them one after the other, and the whole trip waits for them.
	maxAlike = 8
	// maxLooked bounds what is looked at for a trip while many calls are alike.
	maxLooked = 4 * maxBatchOps
	// maxAlone is how many requests go at the same time where calls do not travel together.
	maxAlone = 256
)

// traffic sends off what is asked, in as few requests as that takes.
type traffic struct {
	most int           // trips under way before calls gather
	max  int           // trips under way while earlier ones are late
	full int           // calls in a trip
	send func(*trip)   // has every call of the trip answered
	late *time.Timer   // of latePatience
	idle chan struct{} // closed, once nothing is under way and nothing will be

	mu       sync.Mutex
	queue    queue
	underWay int
	direct   int  // requests under way that are no trips
	armed    bool // late runs
	closed   bool
}

func (t *traffic) start() {
	t.idle = make(chan struct{})
	t.late = time.AfterFunc(time.Hour, t.isLate)
	t.late.Stop()
}

// enter queues a, and sends off a trip if one may go.
func (t *traffic) enter(a *asked) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrClosed
	case t.queue.len >= maxWaiting:
		return &goneError{errFull, true}
	}
	t.queue.push(a)
	if t.underWay < t.most {
		t.underWay++
		go t.travel()
	} else {
		t.arm()
	}
	return nil
}

// arm has the queue looked at later, unless that is so already.
func (t *traffic) arm() {
	if !t.armed && t.queue.len > 0 && t.underWay < t.max {
		t.armed = true
		t.late.Reset(latePatience)
	}
}

// isLate sends off what waits, as no trip came back for latePatience.
func (t *traffic) isLate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = false
	if t.queue.len > 0 && t.underWay < t.max {
		t.underWay++
		go t.travel()
	}
}

// travel makes trips for as long as calls wait.
func (t *traffic) travel() {
	for trip := t.depart(false); trip != nil; trip = t.depart(true) {
		t.send(trip)
	}
}

// depart returns the next trip, or nil where there is none to make: then one less is under
// way. again says that the last one has come back.
func (t *traffic) depart(again bool) *trip {
	runtime.Gosched() // whoever runs already, as those who were just answered, may have more to ask
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue.len == 0 || again && t.underWay > t.most {
		t.underWay--
		t.arm()
		t.ended()
		return nil
	}
	trip := t.load()
	if t.armed && again { // it is not late
		t.armed = false
		t.late.Stop()
	}
	t.arm()
	return trip
}

// load takes from the queue what travels together.
func (t *traffic) load() *trip {
	trip := &trip{size: len(batchOpening) + len(batchClosing)}
	for a, looked := t.queue.first, 0; a != nil && len(trip.calls) < t.full && looked < maxLooked; looked++ {
		next := a.after
		if trip.admits(a) {
			t.queue.remove(a)
			trip.board(a)
		}
		a = next
	}
	trip.close()
	return trip
}

// leave takes a, whose caller does not wait any more, out of the queue or off its trip. sent
// says that it may have reached the service; gone is false if it is answered.
func (t *traffic) leave(a *asked, why error) (sent, gone bool) {
	t.mu.Lock()
	if a.state.Load() == waiting {
		t.queue.remove(a)
		a.state.Store(left)
		t.mu.Unlock()
		return false, true
	}
	t.mu.Unlock()
	if !a.state.CompareAndSwap(travelling, left) {
		return true, false
	}
	a.on.disembark(why)
	return true, true
}

// close refuses further calls, and waits until no trip is under way.
func (t *traffic) close() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		t.ended()
	}
	t.mu.Unlock()
	<-t.idle
}

// ended wakes who closes, if that was the last that was under way.
func (t *traffic) ended() {
	if t.closed && t.underWay == 0 && t.direct == 0 {
		t.late.Stop()
		close(t.idle)
	}
}

// bypass makes a request that is no trip.
func (t *traffic) bypass(request func() error) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	t.direct++
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.direct--
		t.ended()
	}()
	return request()
}
