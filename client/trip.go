package client

import (
	"context"
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// trip is one request to the service, with one call or several.
type trip struct {
	calls   []*asked
	size    int           // of its batch in bytes, at most
	alike   [places]uint8 // how many demands of each place are there
	most    uint8         // of alike
	trails  bool          // some of its calls are answered, and another one has gone
	alikeBy time.Time     // when the last of those that are slowAlike or more was answered by a line; zero: none was
	places  []uint16      // of all demands
	here    []uint16      // of calls that were answered by lines, and are marked as under way
	gone    []uint16      // of those that are not any more
	ctx     context.Context
	cancel  context.CancelCauseFunc
	aboard  atomic.Int32 // calls whose callers wait
}

var seed = maphash.MakeSeed() // of places in trip.alike; it is the same for all

func newTrip() *trip { return &trip{size: len(batchOpening) + len(batchClosing)} }

// admits reports whether there is room for a beside the calls that are there, of which alike
// travel together at most if they are.
func (t *trip) admits(a *asked, alike int) bool {
	if len(t.calls) == 0 {
		return true
	}
	if t.size+a.call.operationLen(a.members) > maxBatchLen {
		return false
	}
	for _, p := range a.places {
		if int(t.alike[p]) >= alike {
			return false
		}
	}
	return true
}

// hasAlike reports whether a call like a is there.
func (t *trip) hasAlike(a *asked) bool {
	for _, p := range a.places {
		if t.alike[p] > 0 {
			return true
		}
	}
	return false
}

// places is how many there are: enough that a full trip has hardly nine calls in one by
// chance.
const places = 1 << 12

// place is where a demand's fellows are counted. Others may be counted there too, which
// delays them by a trip.
func place(d *Demand) uint16 {
	return uint16((maphash.String(seed, d.Identifier) + uint64(len(d.Policy))) % places)
}

func (t *trip) board(a *asked) {
	t.calls = append(t.calls, a)
	t.size += a.call.operationLen(a.members)
	for _, p := range a.places {
		t.alike[p]++
		t.most = max(t.most, t.alike[p])
	}
	t.places = append(t.places, a.places...)
	a.on = t
	a.state.Store(travelling)
}

// close has no more calls come. A request of one call has the values of its caller's context,
// for transports that trace.
func (t *trip) close() {
	t.aboard.Store(int32(len(t.calls)))
	parent := context.Background()
	if len(t.calls) == 1 {
		parent = context.WithoutCancel(t.calls[0].ctx)
	}
	t.ctx, t.cancel = context.WithCancelCause(parent)
}

// disembark notes that a caller does not wait any more. The request ends with the last.
func (t *trip) disembark(why error) {
	if t.aboard.Add(-1) == 0 {
		t.cancel(&leftError{why})
	}
}

// deliver gives every call that has none yet its answer, or err.
func (t *trip) deliver(err error) {
	t.cancel(nil)
	for _, a := range t.calls {
		if a != nil {
			a.arrive(err)
		}
	}
}

// arrive tells a's caller that there is an answer, or err. It is false where the caller has left.
func (a *asked) arrive(err error) bool {
	a.err = err
	if !a.state.CompareAndSwap(travelling, answered) {
		return false
	}
	a.done <- struct{}{}
	return true
}

// answered gives a call the answer that it has, before so many others. Where all of those have
// left, nobody waits any more.
func (t *trip) answered(a *asked, left int) {
	for _, p := range a.places {
		if t.alike[p] >= slowAlike {
			t.alikeBy = time.Now()
		}
	}
	t.here = append(t.here, a.places...)
	if a.arrive(nil) && t.aboard.Add(-1) == 0 && left > 0 {
		t.cancel(&leftError{context.Canceled})
	}
}

// send makes a trip. The error is of all its calls that are not answered before.
func (c *Client) send(t *trip) error {
	err := c.sendCalls(t.ctx, t.calls, t.size, &lines{
		calls: t.calls, answered: t.answered, came: func(left int) {
			c.breaker.hear()
			if left > 0 {
				c.traffic.trail(t)
			}
		},
	})
	t.deliver(err)
	return err
}

// sendCalls fills in the answer of every call. The error is of all of them but those that lines
// were read of.
func (c *Client) sendCalls(ctx context.Context, calls []*asked, size int, in *lines) error {
	if len(calls) == 1 {
		a := calls[0]
		r := request{path: string(a.call.Op), key: a.call.IdempotencyKey, body: make([]byte, 0, len(a.members)+len("{}"))}
		r.body = append(append(append(r.body, '{'), a.members...), '}')
		return c.exchange(ctx, &r, func(r *reply) error { return r.readOne(&a.answer) })
	}
	r := request{path: "batch", body: append(make([]byte, 0, size), batchOpening...), lines: in}
	for i, a := range calls {
		if i > 0 {
			r.body = append(r.body, ',')
		}
		r.body = a.call.appendOperation(r.body, a.members)
	}
	r.body = append(r.body, batchClosing...)
	return c.exchange(ctx, &r, func(r *reply) error { return r.readAll(calls) })
}

// readOne reads the answer to one call.
func (r *reply) readOne(a *answer) error {
	*a = answer{}
	if err := r.scanner().readAnswer(r.status, a); err != nil {
		return r.foreign(err.Error())
	}
	a.decision.Replayed = r.replayed
	if !a.decided {
		a.problem.Field = strings.Replace(a.problem.Field, "Idempotency-Key", "idempotency_key", 1)
		a.problem.RetryAfter = r.retryAfter
	}
	return nil
}

// readAll reads the answer to a batch of calls.
func (r *reply) readAll(calls []*asked) error {
	if r.inLines {
		return nil
	}
	if r.status != http.StatusOK {
		return r.problem()
	}
	err := r.scanner().readResults(len(calls), func(i int) *answer {
		calls[i].answer = answer{}
		return &calls[i].answer
	})
	if err != nil {
		return r.foreign(err.Error())
	}
	for _, a := range calls {
		a.answer.problem.inBatch()
	}
	return nil
}

// inBatch makes p what it would be if its call had gone alone.
func (p *Problem) inBatch() {
	if _, field, ok := strings.Cut(p.Field, "]."); ok && strings.HasPrefix(p.Field, "operations[") {
		p.Field = field
	}
	if p.Status == http.StatusServiceUnavailable {
		p.RetryAfter = batchRetryAfter
	}
}
