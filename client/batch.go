package client

import (
	"context"
	"errors"
	"strconv"
)

// Result is the outcome of one call of a batch. Err is nil if there is a Decision, and a *CallError if not. The
// Decision of a confirm is empty.
type Result struct {
	Decision Decision
	Err      error
}

// Batch makes up to 1000 calls as one request, and returns a result for each, in their order. An invalid call does not
// affect the others. Calls that share a policy and identifier are decided in their order. The error, a *CallError,
// means that the calls don't fit into a batch, and that none was made.
func (c *Client) Batch(ctx context.Context, calls []Call) ([]Result, error) {
	if len(calls) == 0 || len(calls) > maxBatchOps {
		detail := "A batch has 1 to " + strconv.Itoa(maxBatchOps) + " calls."
		return nil, &CallError{"batch", RecordedNo, refuse("operations", detail)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.Timeout, errTimeout)
	defer cancel()
	b := batch{c: c, ctx: ctx, results: make([]Result, len(calls)), tries: c.newTries()}
	size := len(batchOpening) + len(batchClosing)
	for i := range calls {
		a := newAsked()
		if err := c.write(a, calls[i]); err != nil {
			b.results[i].Err = &CallError{string(calls[i].Op), calls[i].recordedAfter(err, false), err}
			continue
		}
		b.pending = append(b.pending, pending{asked: a, at: i})
		size += a.joined.Len
	}
	if size > maxBatchLen {
		return nil, &CallError{"batch", RecordedNo, refuse("operations", "They are longer than a batch of "+strconv.Itoa(maxBatchLen)+" bytes.")}
	}
	b.run(size)
	return b.results, nil
}

// batch is the calls of Batch.
type batch struct {
	c       *Client
	ctx     context.Context
	results []Result
	pending []pending
	tries   tries
}

// pending is a call that has no answer yet.
type pending struct {
	*asked
	at       int // in the results
	recorded Recorded
	err      error // of the last try
}

// run asks until every call is answered or not worth another try.
func (b *batch) run(size int) {
	for len(b.pending) > 0 {
		calls := make([]*asked, len(b.pending))
		for i := range b.pending {
			calls[i] = b.pending[i].asked
		}
		err := b.c.queue.Bypass(func() error { return b.c.sendCalls(b.ctx, calls, size, nil) })
		b.settle(queueError(err))
		if n := len(b.pending); n > 0 && !b.tries.again(b.ctx, b.pending[n-1].err, nil) {
			b.giveUp()
			return
		}
	}
}

// settle fills in the results after a try that returned err. Calls that may succeed in another try stay pending.
func (b *batch) settle(err error) {
	var again []pending
	for _, p := range b.pending {
		if p.err = err; err == nil {
			p.err = p.failure()
		}
		if p.err == nil {
			b.results[p.at] = Result{Decision: p.answer.decision}
			continue
		}
		now := p.call.recordedAfter(p.err, !errors.Is(p.err, ErrClosed))
		if p.recorded != RecordedUnknown {
			p.recorded = now
		}
		if p.call.repeatable(now) && b.tries.waitAfter(p.err) > 0 {
			again = append(again, p)
		} else {
			b.fail(&p)
		}
	}
	b.pending = again
}

// giveUp fills in the results of calls that are still pending.
func (b *batch) giveUp() {
	for i := range b.pending {
		b.fail(&b.pending[i])
	}
	b.pending = nil
}

func (b *batch) fail(p *pending) {
	d, err := b.c.unanswered(&p.call, &CallError{string(p.call.Op), p.recorded, p.err})
	b.results[p.at] = Result{d, err}
}
