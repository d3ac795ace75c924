package client

import (
	"context"
	"errors"
	"strconv"
)

// Result is what became of one call of a batch: Err is nil where there is a Decision, and a
// *CallError otherwise.
type Result struct {
	Decision Decision
	Err      error
}

// Batch makes up to 1000 calls as one request, and returns a result for each, in their order.
// What is wrong with one harms no other. Calls that share a policy and identifier are decided
// in their order. The error, a *CallError, is of calls that do not fit a batch: none was made.
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
		a := new(asked)
		if err := c.write(a, calls[i]); err != nil {
			b.results[i].Err = &CallError{string(calls[i].Op), RecordedNo, err}
			continue
		}
		b.pending = append(b.pending, pending{asked: a, at: i})
		size += a.call.operationLen(a.members)
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
}

// run asks until every call is answered, or not worth another try.
func (b *batch) run(size int) {
	for len(b.pending) > 0 {
		calls := make([]*asked, len(b.pending))
		for i := range b.pending {
			calls[i] = b.pending[i].asked
		}
		err := b.c.traffic.bypass(func() error { return b.c.sendCalls(b.ctx, calls, size, nil) })
		again, why := b.settle(err)
		if len(again) == 0 || !b.tries.again(b.ctx, why, nil) {
			return
		}
		b.pending = again
	}
}

// settle fills in the results, and returns the calls that another try may help, and why.
func (b *batch) settle(err error) (again []pending, why error) {
	for _, p := range b.pending {
		failed := err
		if failed == nil {
			failed = p.answer.err()
		}
		if failed == nil {
			b.results[p.at] = Result{Decision: p.answer.decision}
			continue
		}
		now := recordedOf(failed, p.call.counts(), !errors.Is(failed, ErrClosed))
		if p.recorded != RecordedUnknown {
			p.recorded = now
		}
		d, err := b.c.outcome(&p.call, Decision{}, &CallError{string(p.call.Op), p.recorded, failed})
		b.results[p.at] = Result{d, err}
		if p.call.safe(now) && b.tries.waitAfter(failed) > 0 {
			again, why = append(again, p), failed
		}
	}
	return again, why
}
