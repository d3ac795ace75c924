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
	members []byte   // of call, as appendMembers makes them
	places  []uint16 // of its demands
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
	// minAlike is how many calls of one policy and identifier travel together at first: a
	// service may decide them one after the other, and the whole trip waits. While full trips
	// of them are answered within quickTrip, as a service does that decides in memory, twice
	// as many do, up to maxAlike. A trip that takes twice as long, or has no answer, brings
	// back minAlike.
	minAlike  = 8
	maxAlike  = 32
	quickTrip = 2 * time.Millisecond
	// slowAlike and slowCall tell a service that takes milliseconds for each of several alike
	// calls, as over a store that it has to wait for: it joins them itself if they come as
	// requests of their own. slowSpan is for how long no trip of such calls was faster, as a busy
	// machine holds some up by chance, and slowFor, for how long they go by themselves then.
	slowAlike = 4
	slowCall  = time.Millisecond
	slowSpan  = 50 * time.Millisecond
	slowFor   = 5 * time.Second
	// maxLooked bounds what is looked at for a trip while many calls are alike.
	maxLooked = 4 * maxBatchOps
	// maxAlone is how many requests go at the same time where calls do not travel together.
	maxAlone = 256
)

// traffic sends off what is asked, in as few requests as that takes.
type traffic struct {
	most int               // trips under way before calls gather
	max  int               // trips under way while earlier ones are late
	full int               // calls in a trip
	send func(*trip) error // has every call of the trip answered, or fail with the error
	late *time.Timer       // of latePatience
	idle chan struct{}     // closed, once nothing is under way and nothing will be

	mu       sync.Mutex
	queue    queue
	alike    [places]int32 // how many demands of each place are under way
	together int           // how many alike calls travel together: minAlike to maxAlike
	slow     time.Time     // until then alike calls don't travel together
	slowFrom time.Time     // since then trips of alike calls are slow; zero: the last one was not
	underWay int
	direct   int  // requests under way beside those, which nobody waits for
	trailing int  // trips of which some calls are answered
	armed    bool // late runs
	closed   bool
}

func (t *traffic) start() {
	t.idle, t.together = make(chan struct{}), minAlike
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
	if t.isSlow() && t.hasAlike(a) && t.direct < maxTrips {
		t.spinOff(a)
		return nil
	}
	t.queue.push(a)
	if t.underWay < t.most {
		t.underWay++
		go t.travel(false)
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
		go t.travel(false)
	}
}

// travel makes trips for as long as calls wait. again says that an earlier one has come back, or
// brought some answers.
func (t *traffic) travel(again bool) {
	for trip := t.depart(again); trip != nil; trip = t.depart(true) {
		t.ride(trip)
		if trip.trails { // another one goes in its place
			t.mu.Lock()
			defer t.mu.Unlock()
			t.trailing--
			t.ended()
			return
		}
	}
}

// trail has another trip go in the place of trip, of which some calls are answered: their
// callers may have more to ask, and need not wait for those whose answers take longer.
func (t *traffic) trail(trip *trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmark(trip)
	if trip.trails || t.trailing >= maxTrips {
		return
	}
	trip.trails = true
	t.trailing++
	go t.travel(true)
}

// ride makes trip, and finds out whether alike calls should travel together, and how many.
func (t *traffic) ride(trip *trip) {
	began := time.Now()
	err := t.send(trip)
	ended := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark(trip, -1)
	for _, p := range trip.gone {
		t.alike[p]++ // it was taken out before
	}
	if trip.most < slowAlike {
		return
	}
	if err == nil && !trip.alikeBy.IsZero() { // what others of it waited for is no matter of theirs
		ended = trip.alikeBy
	}
	took := ended.Sub(began)
	switch {
	case err != nil || took >= 2*quickTrip:
		t.together = minAlike
	case took < quickTrip && int(trip.most) >= t.together && len(trip.calls) >= t.together: // one call may have many alike demands
		t.together = min(2*t.together, maxAlike)
	}
	switch {
	case took < time.Duration(trip.most)*slowCall:
		t.slowFrom = time.Time{}
	case t.slowFrom.IsZero():
		t.slowFrom = began
	case ended.Sub(t.slowFrom) >= slowSpan:
		t.slow, t.slowFrom = ended.Add(slowFor), time.Time{}
	}
}

// isSlow reports whether alike calls go as requests of their own.
func (t *traffic) isSlow() bool { return !t.slow.IsZero() && time.Now().Before(t.slow) }

// hasAlike reports whether a call like a is under way.
func (t *traffic) hasAlike(a *asked) bool {
	for _, p := range a.places {
		if t.alike[p] > 0 {
			return true
		}
	}
	return false
}

// mark adds n to what is under way for each demand of trip.
func (t *traffic) mark(trip *trip, n int32) {
	for _, p := range trip.places {
		t.alike[p] += n
	}
}

// unmark takes those calls of trip that were answered by lines out of what is under way.
func (t *traffic) unmark(trip *trip) {
	for _, p := range trip.here {
		t.alike[p]--
	}
	trip.gone = append(trip.gone, trip.here...)
	trip.here = trip.here[:0]
}

// spinOff sends a off, which is in no queue, as a request of its own.
func (t *traffic) spinOff(a *asked) {
	trip := newTrip()
	trip.board(a)
	trip.close()
	t.mark(trip, 1)
	t.direct++
	go func() {
		t.ride(trip)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.direct--
		t.ended()
	}()
}

// depart returns the next trip, or nil where there is none to make: then one less is under
// way. again says that the last one has come back.
func (t *traffic) depart(again bool) *trip {
	runtime.Gosched() // whoever runs already, as those who were just answered, may have more to ask
	t.mu.Lock()
	defer t.mu.Unlock()
	var trip *trip
	if t.queue.len > 0 && (!again || t.underWay <= t.most) {
		trip = t.load()
	}
	if trip == nil {
		t.underWay--
		t.arm()
		t.ended()
		return nil
	}
	if t.armed && again { // it is not late
		t.armed = false
		t.late.Stop()
	}
	t.arm()
	return trip
}

// load takes from the queue what travels together; nil where none of it does.
func (t *traffic) load() *trip {
	trip, slow := newTrip(), t.isSlow()
	for a, looked := t.queue.first, 0; a != nil && len(trip.calls) < t.full && looked < maxLooked; looked++ {
		next := a.after
		switch {
		case slow && (trip.hasAlike(a) || t.hasAlike(a)) && t.direct < maxTrips:
			t.queue.remove(a)
			t.spinOff(a)
		case trip.admits(a, t.together):
			t.queue.remove(a)
			trip.board(a)
		}
		a = next
	}
	if len(trip.calls) == 0 {
		return nil
	}
	trip.close()
	t.mark(trip, 1)
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
	if t.closed && t.underWay == 0 && t.direct == 0 && t.trailing == 0 {
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
