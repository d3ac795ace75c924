package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

const (
	maxQueued   = 8192 // most calls that wait to be sent to one owner; further ones fail at once
	maxTogether = 512  // most calls or answers in one message: some 60 KB
	firstRetry  = 20 * time.Millisecond
	lastRetry   = 250 * time.Millisecond
	maxMessage  = 4 << 20
)

// link is the connection to one owner.
type link struct {
	pool      *Pool
	member    cluster.Member
	connected atomic.Bool
	queue     chan *outgoing
	stop      context.CancelFunc
	wanted    time.Time // when the member was last listed; guarded by the pool's mu

	mu      sync.Mutex
	number  uint64
	pending map[uint64]*outgoing // calls that were sent and are not answered yet
}

// outgoing is a call that is being handed on.
type outgoing struct {
	call   *peerpb.Call
	until  time.Time
	answer *peerpb.Answer
	err    error
	done   chan struct{} // closed once answer or err is set; nil: the caller does not wait
}

func newLink(p *Pool, member cluster.Member) *link {
	return &link{pool: p, member: member, queue: make(chan *outgoing, maxQueued), pending: make(map[uint64]*outgoing)}
}

var _ demand.Peer = (*link)(nil)

// Decide sends c to the owner and fills in c's decision; see demand.Peer.
func (l *link) Decide(ctx context.Context, c *demand.Charge) error {
	span, parent := tracing.HandOn(ctx, string(l.member.ID), c)
	err := l.ask(ctx, c, parent)
	span.HandedOn(c, err)
	switch {
	case err == nil:
		l.pool.answered.Add(1)
	case demand.IsUndone(err):
		l.pool.refused.Add(1)
	default:
		l.pool.failed.Add(1)
	}
	return err
}

func (l *link) ask(ctx context.Context, c *demand.Charge, parent tracing.Parent) error {
	o := &outgoing{call: callOf(c), done: make(chan struct{})}
	o.call.Traceparent, o.call.Tracestate = parent.Traceparent, parent.Tracestate
	if deadline, ok := ctx.Deadline(); ok {
		o.until = deadline
	}
	if err := l.enqueue(o); err != nil {
		return err
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: the owner of the key did not answer in time: %w", store.ErrUnavailable, ctx.Err())
	}
	if o.err != nil {
		return o.err
	}
	l.pool.members.Notice(o.answer.GetView())
	return read(o.answer, c)
}

// Tell sends c to the owner, which does not answer it; see demand.Peer.
func (l *link) Tell(c *demand.Charge) { _ = l.enqueue(&outgoing{call: callOf(c)}) }

// enqueue queues o to be sent. It returns errGone if the owner is not reached, or too many calls wait.
func (l *link) enqueue(o *outgoing) error {
	if l.connected.Load() {
		select {
		case l.queue <- o:
			return nil
		default:
		}
	}
	return errGone
}

// run keeps the connection until ctx ends.
func (l *link) run(ctx context.Context) {
	defer l.pool.members.Reach(l.member.ID, cluster.Reached) // a member that is no longer checked counts as reached
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		reached, err := l.runStream(ctx)
		l.connected.Store(false)
		l.failQueued()
		if ctx.Err() != nil {
			return
		}
		if reached {
			pause = firstRetry
			l.pool.log.Warn("the connection to a peer ended", "member", l.member.ID, "error", err)
		}
		switch {
		case errors.Is(err, errSilent), errors.Is(err, errOther):
			l.pool.members.Reach(l.member.ID, cluster.Unreached)
		case !reached: // after a connection that ended, it may be reached again at once
			l.pool.members.Reach(l.member.ID, cluster.Refused)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// runStream connects, sends calls and reads answers on one stream until it ends.
func (l *link) runStream(ctx context.Context) (reached bool, err error) {
	conn, err := l.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stream, named, err := l.open(ctx, stop, conn)
	if err != nil {
		return false, err
	}
	l.connected.Store(true)
	l.pool.members.Reach(l.member.ID, cluster.Reached)
	var others sync.WaitGroup
	others.Go(func() { stop(l.send(ctx, stream)) })
	others.Go(func() { l.watch(ctx, stop, conn, named) })
	err = l.receive(stream)
	stop(err)
	others.Wait()
	l.failPending()
	return true, context.Cause(ctx)
}

// send sends waiting calls, many in a message, until ctx ends.
func (l *link) send(ctx context.Context, stream grpc.BidiStreamingClient[peerpb.Calls, peerpb.Answers]) error {
	for {
		var calls peerpb.Calls
		if err := gather(ctx, l.queue, func(o *outgoing) { l.enter(&calls, o) }); err != nil {
			return err
		}
		if err := stream.Send(&calls); err != nil {
			return err
		}
	}
}

// gather adds the next item of queue to a message, and then all items that wait, up to maxTogether in all. It returns an error
// if ctx ends before there is an item.
func gather[T any](ctx context.Context, queue <-chan T, add func(T)) error {
	select {
	case next := <-queue:
		add(next)
	case <-ctx.Done():
		return ctx.Err()
	}
	runtime.Gosched() // lets other goroutines queue their items first, as each message costs more than an item
	for range maxTogether - 1 {
		select {
		case next := <-queue:
			add(next)
		default:
			return nil
		}
	}
	return nil
}

// enter adds o to calls, which is about to be sent, unless its time is over.
func (l *link) enter(calls *peerpb.Calls, o *outgoing) {
	if left := time.Until(o.until); o.until.IsZero() || left > 0 {
		o.call.WithinMicros = left.Microseconds()
	} else {
		o.fail(errGone)
		return
	}
	if o.done != nil {
		l.mu.Lock()
		l.number++
		o.call.Number = l.number
		l.pending[l.number] = o
		l.mu.Unlock()
	}
	calls.Calls = append(calls.Calls, o.call)
}

// receive hands answers to waiting callers until the stream ends.
func (l *link) receive(stream grpc.BidiStreamingClient[peerpb.Calls, peerpb.Answers]) error {
	for {
		answers, err := stream.Recv()
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, a := range answers.GetAnswers() {
			o := l.pending[a.GetNumber()]
			if o == nil {
				continue
			}
			delete(l.pending, a.GetNumber())
			o.answer = a
			close(o.done)
		}
		l.mu.Unlock()
	}
}

func (o *outgoing) fail(err error) {
	if o.done != nil {
		o.err = err
		close(o.done)
	}
}

var errUnanswered = fmt.Errorf("%w: the connection to the owner of the key ended before it answered", store.ErrUnavailable)

// failPending fails the calls that were sent. It is not known whether they were decided.
func (l *link) failPending() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.pending {
		o.fail(errUnanswered)
	}
	clear(l.pending)
}

// failQueued fails the calls that were not sent.
func (l *link) failQueued() {
	for {
		select {
		case o := <-l.queue:
			o.fail(errGone)
		default:
			return
		}
	}
}

var errNonsense = errors.New("the answer of a peer makes no sense")
