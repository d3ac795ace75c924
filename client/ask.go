package client

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"
)

// write makes a the call, with a key where it may be tried again. The error is a *Problem.
func (c *Client) write(a *asked, call Call) error {
	if err := call.check(); err != nil {
		return err
	}
	a.call = call
	switch {
	case call.Op == OpCheck && call.Reserve == 0:
		a.call.IdempotencyKey = "" // which counts nothing: a batch would refuse it
	case call.Op == OpCheck: // the service says that one which reserves has none, and gets none made
	case c.opts.Retries > 0 && call.IdempotencyKey == "":
		a.call.IdempotencyKey = rand.Text()
	}
	a.members = a.call.appendMembers(a.members[:0])
	a.places = a.places[:0]
	for i := range a.call.Demands {
		a.places = append(a.places, place(&a.call.Demands[i]))
	}
	if len(a.members) > maxLoneLen-len("{}") {
		return refuse("", "The call is longer than "+strconv.Itoa(maxLoneLen)+" bytes.")
	}
	return nil
}

// begin begins the time of a.
func (a *asked) begin(ctx context.Context, timeout time.Duration) {
	a.ctx = ctx
	if a.timer == nil {
		a.timer = time.NewTimer(timeout)
	} else {
		a.timer.Reset(timeout)
	}
}

// forget makes a ready for another call.
func (a *asked) forget() {
	a.ctx, a.call, a.answer, a.err, a.on = nil, Call{}, answer{}, nil, nil
	if cap(a.members) > maxSpareLen {
		a.members = nil
	}
}

// maxSpareLen keeps the rare long call from staying in memory.
const maxSpareLen = 4 << 10

// tries has a answered, or gives up. kept says that a is the caller's own again.
func (c *Client) tries(ctx context.Context, a *asked) (d Decision, kept bool, failed *CallError) {
	recorded := RecordedNo
	tries := c.newTries()
	for {
		sent, kept, err := c.try(ctx, a)
		if err == nil {
			if err = a.answer.err(); err == nil {
				return a.answer.decision, true, nil
			}
		}
		now := recordedOf(err, a.call.counts(), sent)
		if recorded != RecordedUnknown { // an earlier try may count yet
			recorded = now
		}
		if !kept || !a.call.safe(now) || !tries.again(ctx, err, a.timer.C) {
			return Decision{}, kept, &CallError{string(a.call.Op), recorded, err}
		}
	}
}

// err returns the problem that a is, or nil.
func (a *answer) err() error {
	if a.decided {
		return nil
	}
	p := a.problem
	return &p
}

// try asks once, and waits until a is answered or its time is over. sent says that it may
// have reached the service; kept, that a is the caller's own again.
func (c *Client) try(ctx context.Context, a *asked) (sent, kept bool, err error) {
	a.state.Store(waiting)
	if err := c.traffic.enter(a); err != nil {
		return false, true, err
	}
	var why error
	select {
	case <-a.done:
		return true, true, a.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-a.timer.C:
		why = errTimeout
	}
	if sent, gone := c.traffic.leave(a, why); gone {
		if !errors.Is(why, context.Canceled) {
			why = &goneError{cause: why}
		}
		return sent, !sent, why
	}
	<-a.done
	return true, true, a.err
}
