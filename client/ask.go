package client

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
	"github.com/ratelimitd/ratelimitd/client/internal/transport"
)

// asked is one call until it is answered.
type asked struct {
	call    Call
	members []byte // of call, by appendMembers
	answer  answer
	timer   *time.Timer // fires after Options.Timeout
	joined  *join.Call[*asked]
}

func newAsked() *asked {
	a := new(asked)
	a.joined = join.NewCall(a)
	return a
}

// write makes a the call, with an idempotency key if it may be tried again. The error is a *Problem.
func (c *Client) write(a *asked, call Call) error {
	if err := call.Validate(); err != nil {
		return err
	}
	a.call = call
	switch {
	case call.Op == OpCheck && call.Reserve == 0:
		a.call.IdempotencyKey = "" // a check counts nothing, and a batch would refuse the key
	case call.Op == OpConfirm: // a confirm counts once without a key
	case call.Op == OpCheck: // a check that reserves gets no key: the service would refuse it
	case c.opts.Retries > 0 && call.IdempotencyKey == "":
		a.call.IdempotencyKey = rand.Text()
	}
	a.members = a.call.appendMembers(a.members[:0])
	a.joined.Len = a.call.operationLen(a.members)
	a.joined.Slots = a.joined.Slots[:0]
	for i := range a.call.Demands {
		a.joined.Slots = append(a.joined.Slots, slotOf(&a.call.Demands[i]))
	}
	if len(a.members) > maxLoneLen-len("{}") {
		return refuse("", "The call is longer than "+strconv.Itoa(maxLoneLen)+" bytes.")
	}
	return nil
}

var seed = maphash.MakeSeed() // for slotOf

// slotOf returns the slot that d shares with alike demands.
func slotOf(d *Demand) join.Slot {
	return join.Slot((maphash.String(seed, d.Identifier) + uint64(len(d.Policy))) % join.Slots)
}

// begin starts the timer of a.
func (a *asked) begin(ctx context.Context, timeout time.Duration) {
	a.joined.Context, a.joined.Trace = ctx, traceOf(ctx)
	if a.timer == nil {
		a.timer = time.NewTimer(timeout)
	} else {
		a.timer.Reset(timeout)
	}
}

// maxSpareLen keeps the memory of a rare long call from being kept.
const maxSpareLen = 4 << 10

// reset makes a ready for another call.
func (a *asked) reset() {
	a.call, a.answer = Call{}, answer{}
	a.joined.Reset()
	if cap(a.members) > maxSpareLen {
		a.members = nil
	}
}

// tries asks until a is answered or no try is left. kept reports that no other goroutine uses a any longer.
func (c *Client) tries(ctx context.Context, a *asked) (d Decision, kept bool, failed *CallError) {
	recorded := RecordedNo
	tries := c.newTries()
	for {
		sent, kept, err := c.try(ctx, a)
		if err == nil {
			if err = a.failure(); err == nil {
				return a.answer.decision, true, nil
			}
		}
		now := a.call.recordedAfter(err, sent)
		if recorded != RecordedUnknown { // an earlier try may have counted
			recorded = now
		}
		if !kept || !a.call.repeatable(now) || !tries.again(ctx, err, a.timer.C) {
			return Decision{}, kept, &CallError{string(a.call.Op), recorded, err}
		}
	}
}

// failure returns the error of an answer that does not fit the call; nil if it fits.
func (a *asked) failure() error {
	confirm := a.call.Op == OpConfirm
	switch {
	case a.answer.decided && !confirm, a.answer.confirmed && confirm:
		return nil
	case a.answer.decided || a.answer.confirmed: // an answer to another kind of call
		return foreign(&transport.ForeignError{Status: a.answer.status, Why: jsonscan.ErrUnreadable.Error()})
	}
	p := a.answer.problem
	return &p
}

// try asks once, and waits until a is answered or its time is over. sent reports whether the call may have reached the
// service, and kept that no other goroutine uses a any longer.
func (c *Client) try(ctx context.Context, a *asked) (sent, kept bool, err error) {
	if err := c.queue.Enter(a.joined); err != nil {
		return false, true, queueError(err)
	}
	var why error
	select {
	case <-a.joined.Done():
		return true, true, a.joined.Err()
	case <-ctx.Done():
		why = ctx.Err()
	case <-a.timer.C:
		why = errTimeout
	}
	if sent, gone := c.queue.Leave(a.joined, why); gone {
		if !errors.Is(why, context.Canceled) {
			why = &noAnswerError{cause: why}
		}
		return sent, !sent, why
	}
	<-a.joined.Done()
	return true, true, a.joined.Err()
}
