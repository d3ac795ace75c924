package join

import (
	"runtime"
	"sync"
	"time"
)

// Bounds of a Queue.
const (
	// maxWaiting is the maximum number of waiting calls. Calls behind so many are not answered in time.
	maxWaiting = 1 << 16
	// MaxRequests is the maximum number of requests under way while earlier ones are late.
	MaxRequests = 64
	// patience is how long calls wait for a request to return. Then another one goes, so that a slow request, as for a
	// policy whose store does not answer, does not delay calls of other policies.
	patience = 10 * time.Millisecond
	// maxLookedAt bounds the waiting calls that are considered for a group, in calls of a full one: many may be alike.
	maxLookedAt = 4
)

// Options of a Queue. All are required.
type Options[V any] struct {
	Requests    int // number under way from which further calls wait
	MaxRequests int // number under way while earlier ones are late; at least Requests
	MaxCalls    int // of a group
	MaxLen      int // of a group, in bytes; a longer call goes alone

	// Send sends a group as one request, and fills in the values of its calls. It returns the error of the calls for
	// which it has not called Answer.
	Send func(*Group[V]) error
}

// Queue sends calls in as few requests as possible. It is safe for concurrent use. Make one with New, and Close it
// after use.
type Queue[V any] struct {
	opts Options[V]
	late *time.Timer   // fires after patience
	idle chan struct{} // closed after Close, once nothing is under way

	mu       sync.Mutex
	waiting  list[V]
	alike    alike
	underWay int  // requests, at most opts.MaxRequests
	apart    int  // requests that do not count in underWay: of alike calls, and of Bypass
	replaced int  // requests with some answers that other requests have replaced
	armed    bool // late is running
	closed   bool
}

// New returns an empty queue.
func New[V any](opts Options[V]) *Queue[V] {
	q := &Queue[V]{opts: opts, idle: make(chan struct{}), alike: alike{together: minAlike}}
	q.late = time.AfterFunc(time.Hour, q.isLate)
	q.late.Stop()
	return q
}

// Enter queues c, and sends a group if there may be another request. Its error is ErrClosed or ErrFull.
func (q *Queue[V]) Enter(c *Call[V]) error {
	c.state.Store(waiting)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.waiting.len >= maxWaiting:
		return ErrFull
	}
	if q.alike.isSlow() && q.alike.has(c.Slots) && q.apart < MaxRequests {
		q.sendApart(c)
		return nil
	}
	q.waiting.push(c)
	if q.underWay < q.opts.Requests {
		q.underWay++
		go q.run(false)
	} else {
		q.arm()
	}
	return nil
}

// Leave takes c, whose caller does not wait any longer, out of the queue or its group. sent says that it may have
// reached the service. gone is false if c is answered, and Done receives.
func (q *Queue[V]) Leave(c *Call[V], why error) (sent, gone bool) {
	if q.unqueue(c) {
		return false, true
	}
	if !c.leaveGroup() {
		return true, false
	}
	c.group.leave(why)
	return true, true
}

func (q *Queue[V]) unqueue(c *Call[V]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.state.Load() != waiting {
		return false
	}
	q.waiting.remove(c)
	c.state.Store(left)
	return true
}

func (c *Call[V]) leaveGroup() bool { return c.state.CompareAndSwap(sent, left) }

// Bypass makes a request that does not use the queue. Its error is that of request, or ErrClosed.
func (q *Queue[V]) Bypass(request func() error) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.apart++
	q.mu.Unlock()
	defer q.endApart()
	return request()
}

// Close refuses further calls, and waits until no request is under way.
func (q *Queue[V]) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.checkIdle()
	}
	q.mu.Unlock()
	<-q.idle
}

// checkIdle closes idle if the queue is closed and nothing is under way.
func (q *Queue[V]) checkIdle() {
	if q.closed && q.underWay == 0 && q.apart == 0 && q.replaced == 0 {
		q.late.Stop()
		close(q.idle)
	}
}

// arm starts late, unless it is running or there is nothing to send.
func (q *Queue[V]) arm() {
	if !q.armed && q.waiting.len > 0 && q.underWay < q.opts.MaxRequests {
		q.armed = true
		q.late.Reset(patience)
	}
}

// isLate sends waiting calls, as no request has returned for patience.
func (q *Queue[V]) isLate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	if q.waiting.len > 0 && q.underWay < q.opts.MaxRequests {
		q.underWay++
		go q.run(false)
	}
}

// run sends groups while calls wait. again says that an earlier request has returned, or has brought some answers.
func (q *Queue[V]) run(again bool) {
	for g := q.next(again); g != nil; g = q.next(true) {
		q.send(g)
		if g.replaced {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.replaced--
			q.checkIdle()
			return
		}
	}
}

// replace lets another group take the place of g, some of whose calls are answered: their callers may have more calls,
// which need not wait for answers that take longer.
func (q *Queue[V]) replace(g *Group[V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alike.mark(g.early, -1)
	g.unmarked = append(g.unmarked, g.early...)
	g.early = g.early[:0]
	if g.replaced || q.replaced >= MaxRequests {
		return
	}
	g.replaced = true
	q.replaced++
	go q.run(true)
}

// send sends g, and adapts to the time that takes.
func (q *Queue[V]) send(g *Group[V]) {
	began := time.Now()
	err := q.opts.Send(g)
	g.finish(err)
	ended := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alike.mark(g.slots, -1)
	q.alike.mark(g.unmarked, 1) // replace removed these marks before
	if err == nil && !g.alikeAt.IsZero() {
		ended = g.alikeAt // the wait of its other calls says nothing about the alike ones
	}
	q.alike.learn(began, ended, int(g.most), len(g.calls), err)
}

// sendApart sends c, which is not in the queue, as a request of its own.
func (q *Queue[V]) sendApart(c *Call[V]) {
	g := &Group[V]{queue: q}
	g.add(c)
	g.seal()
	q.alike.mark(g.slots, 1)
	q.apart++
	go func() {
		defer q.endApart()
		q.send(g)
	}()
}

func (q *Queue[V]) endApart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apart--
	q.checkIdle()
}

// next returns the group to send next. If it returns nil, one request less is under way. again says that the last one
// has returned.
func (q *Queue[V]) next(again bool) *Group[V] {
	runtime.Gosched() // callers that are running, such as those just answered, may have more calls
	q.mu.Lock()
	defer q.mu.Unlock()
	var g *Group[V]
	if q.waiting.len > 0 && (!again || q.underWay <= q.opts.Requests) {
		g = q.gather()
	}
	if g == nil {
		q.underWay--
		q.arm()
		q.checkIdle()
		return nil
	}
	if q.armed && again { // the request that returned was not late
		q.armed = false
		q.late.Stop()
	}
	q.arm()
	return g
}

// gather takes from the queue the calls that go together. It returns nil if all of them are sent apart.
func (q *Queue[V]) gather() *Group[V] {
	g, slow := &Group[V]{queue: q}, q.alike.isSlow()
	for c, looked := q.waiting.first, 0; c != nil && len(g.calls) < q.opts.MaxCalls && looked < maxLookedAt*q.opts.MaxCalls; looked++ {
		next := c.after
		switch {
		case slow && (g.hasAlike(c) || q.alike.has(c.Slots)) && q.apart < MaxRequests:
			q.waiting.remove(c)
			q.sendApart(c)
		case g.admits(c, q.opts.MaxLen, q.alike.together):
			q.waiting.remove(c)
			g.add(c)
		}
		c = next
	}
	if len(g.calls) == 0 {
		return nil
	}
	g.seal()
	q.alike.mark(g.slots, 1)
	return g
}

// UnderWay returns the number of demands that count as under way: 0 once Close has returned.
func (q *Queue[V]) UnderWay() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, demands := range q.alike.underWay {
		n += max(int(demands), -int(demands))
	}
	return n
}
