//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
)

const (
	underWay = 512 // most calls under way: more are dropped instead of made late
	tries    = 8   // of a call that is repeated until there is an answer
	retryIn  = 400 * time.Millisecond
)

// call makes calls at their times, even if earlier ones have no answer yet, and waits for all answers.
func (r *run) call(ctx context.Context, requests []schedule.Request) {
	var all sync.WaitGroup
	tickets := make(chan struct{}, underWay)
	for i := range requests {
		q := &requests[i]
		r.waitUntil(ctx, q.At)
		if ctx.Err() != nil {
			break
		}
		select {
		case tickets <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer func() { <-tickets }()
			r.makeCalls(ctx, i+1, q)
		})
	}
	all.Wait()
}

// makeCalls makes the n-th call and those that depend on it: repetitions under its idempotency key, the record that
// settles its reservation, and the confirmations or refunds of its receipt.
func (r *run) makeCalls(ctx context.Context, n int, q *schedule.Request) {
	c := history.Call{N: n, Process: q.Process, Op: q.Op, Demands: q.Demands, Key: q.Key, Reserve: q.Reserve}
	a, reservation := r.do(ctx, c, "")
	switch {
	case q.Key != "":
		c.Of = n
		r.insist(ctx, c, "", &a, q.Again)
	case reservation != "" && q.Settle > 0:
		wait(ctx, q.Settle)
		c.Of, c.Op, c.Reserve, c.Settles, c.Cost = n, history.Record, 0, true, q.Cost
		c.Process = (q.Process + 1) % r.Processes
		settled, _ := r.do(ctx, c, reservation)
		r.insist(ctx, c, reservation, &settled, q.Again)
	}
	if token := cmp.Or(a.Receipt, reservation); token != "" && len(q.Ends) > 0 {
		r.end(ctx, n, q, token)
	}
}

// end sends the calls with token, the receipt or the reservation of the n-th call.
func (r *run) end(ctx context.Context, n int, q *schedule.Request, token string) {
	wait(ctx, q.EndWait)
	var all sync.WaitGroup
	for i, op := range q.Ends {
		c := history.Call{N: n, Of: n, Process: (q.Process + 1 + i) % r.Processes, Op: op, Demands: q.Demands}
		all.Go(func() {
			a, _ := r.do(ctx, c, token)
			r.insist(ctx, c, token, &a, false)
		})
	}
	all.Wait()
}

// insist sends c, with token, to other processes until one answers, and once more if again is set.
func (r *run) insist(ctx context.Context, c history.Call, token string, a *history.Answer, again bool) {
	for try := 1; try < tries && ctx.Err() == nil; try++ {
		if a.Decided() && !again {
			return
		}
		again = again && !a.Decided()
		wait(ctx, time.Duration(try)*retryIn)
		c.Process = (c.Process + 1) % r.Processes
		*a, _ = r.do(ctx, c, token)
	}
}

// do makes one call, with token unless that is empty, and adds it to the history.
func (r *run) do(ctx context.Context, c history.Call, token string) (history.Answer, string) {
	address := r.processes[c.Process].address()
	c.Called = r.now()
	a, reservation := ask(ctx, address, &c, token)
	c.Returned, c.Answer = r.now(), a
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Calls = append(r.history.Calls, c)
	return a, reservation
}

var errUndecided = errors.New("not decided yet")

// askAll asks two processes for the used units of each key whose counts have not expired.
func (r *run) askAll(ctx context.Context) {
	for i, d := range r.lasting() {
		for j := range min(2, r.Processes) {
			c := history.Call{N: -i - 1, Process: (i + j) % r.Processes, Op: history.Check, Demands: []history.Demand{d}, Final: true}
			_ = poll(ctx, func() error { // the check reports a key without an answer
				if a, _ := r.do(ctx, c, ""); !a.Decided() {
					return errUndecided
				}
				return nil
			})
		}
	}
}

// lasting returns the keys whose counts have not expired at the end.
func (r *run) lasting() (keys []history.Demand) {
	seen := make(map[history.Demand]bool)
	for i := range r.history.Calls {
		for _, d := range r.history.Calls[i].Demands {
			p := r.history.Header.Policy(d.Policy)
			if (p.Kept || p.With != "") && !seen[d] {
				seen[d] = true
				keys = append(keys, d)
			}
		}
	}
	return keys
}
