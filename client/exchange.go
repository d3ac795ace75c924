package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/circuit"
	"github.com/ratelimitd/ratelimitd/client/internal/join"
	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
	"github.com/ratelimitd/ratelimitd/client/internal/transport"
)

// send sends a group of calls as one request. The error applies to all calls without an answer.
func (c *Client) send(g *join.Group[*asked]) error {
	calls := g.Values()
	size := len(batchOpening) + g.Len() + len(batchClosing)
	return c.sendCalls(g.Context(), calls, size, &lines{group: g, calls: calls, heard: c.breaker.Heard})
}

// sendCalls sends calls and fills in their answers. size bounds the bytes of a batch of them. The error applies to all
// calls but those whose answer in has read.
func (c *Client) sendCalls(ctx context.Context, calls []*asked, size int, in *lines) error {
	if len(calls) == 1 {
		a := calls[0]
		r := transport.Request{Route: string(a.call.Op), IdempotencyKey: a.call.IdempotencyKey, Body: make([]byte, 0, len(a.members)+len("{}"))}
		r.Body = append(append(append(r.Body, '{'), a.members...), '}')
		return c.exchange(ctx, &r, nil, func(r *reply) error { return r.readOne(&a.answer) })
	}
	r := transport.Request{Route: "batch", Body: append(make([]byte, 0, size), batchOpening...)}
	for i, a := range calls {
		if i > 0 {
			r.Body = append(r.Body, ',')
		}
		r.Body = a.call.appendOperation(r.Body, a.members)
	}
	r.Body = append(r.Body, batchClosing...)
	return c.exchange(ctx, &r, in, func(r *reply) error { return r.readAll(calls) })
}

// exchange sends r, unless requests fail at once, and passes the reply to read. in takes the reply in lines; nil: no
// lines are requested. The error is a *Problem, or an ErrUnavailable.
func (c *Client) exchange(ctx context.Context, r *transport.Request, in *lines, read func(*reply) error) error {
	err := c.breaker.Do(func() error {
		back := replies.Get().(*reply)
		defer back.release()
		if in != nil {
			in.names, r.Lines = back.names, in
		}
		if err := c.transport.RoundTrip(ctx, r, &back.Reply); err != nil {
			return noAnswer(ctx, err)
		}
		return read(back)
	})
	if errors.Is(err, circuit.ErrOpen) {
		return &noAnswerError{cause: err, notSent: true}
	}
	return err
}

// reply is a reply, and memory for reading it.
type reply struct {
	transport.Reply
	names jsonscan.Names
}

var replies = sync.Pool{New: func() any { return &reply{names: make(jsonscan.Names)} }}

// maxKeptLen keeps the memory of a rare long reply from being kept.
const maxKeptLen = 1 << 20

func (r *reply) release() {
	if cap(r.Body) <= maxKeptLen {
		replies.Put(r)
	}
}

func (r *reply) decoder() decoder { return decoder{jsonscan.New(r.Body, r.names)} }

// unreadable returns the error of a reply that ratelimitd does not give.
func (r *reply) unreadable() error { return foreign(r.Foreign(jsonscan.ErrUnreadable.Error())) }

// problem reads a problem from the reply. If it is not one, the error says so.
func (r *reply) problem() error {
	p, ok := readProblem(r.Status, r.Body)
	if !ok {
		return r.unreadable()
	}
	p.RetryAfter = r.RetryAfter
	return &p
}

// readOne reads the answer to one call.
func (r *reply) readOne(a *answer) error {
	*a = answer{}
	if r.decoder().readAnswer(r.Status, a) != nil {
		return r.unreadable()
	}
	a.decision.Replayed = r.Replayed
	if !a.decided {
		a.problem.Field = strings.Replace(a.problem.Field, "Idempotency-Key", "idempotency_key", 1)
		a.problem.RetryAfter = r.RetryAfter
	}
	return nil
}

// readAll reads the answer to a batch of calls.
func (r *reply) readAll(calls []*asked) error {
	if r.Lines {
		return nil
	}
	if r.Status != http.StatusOK {
		return r.problem()
	}
	err := r.decoder().readResults(len(calls), func(i int) *answer {
		calls[i].answer = answer{}
		return &calls[i].answer
	})
	if err != nil {
		return r.unreadable()
	}
	for _, a := range calls {
		a.answer.problem.outOfBatch()
	}
	return nil
}

// batchRetryAfter is the Retry-After of a 503, which results of a batch don't have.
const batchRetryAfter = time.Second

// outOfBatch changes p to the problem that its call would have had alone.
func (p *Problem) outOfBatch() {
	if _, field, ok := strings.Cut(p.Field, "]."); ok && strings.HasPrefix(p.Field, "operations[") {
		p.Field = field
	}
	if p.Status == http.StatusServiceUnavailable {
		p.RetryAfter = batchRetryAfter
	}
}

// lines reads the answers of a group, one line for each call, as they arrive.
type lines struct {
	group *join.Group[*asked]
	calls []*asked
	names jsonscan.Names
	heard func() // called after some answers
}

// ReadLine reads the answer to a call.
func (l *lines) ReadLine(line []byte) error {
	var a answer
	s := decoder{jsonscan.New(line, l.names)}
	if s.readLine(&a) != nil || !l.group.Waiting(a.index) {
		return &transport.ForeignError{Status: http.StatusOK, Why: jsonscan.ErrUnreadable.Error()}
	}
	a.problem.outOfBatch()
	l.calls[a.index].answer = a
	l.group.Answer(a.index)
	return nil
}

// Pause calls heard.
func (l *lines) Pause() {
	l.heard()
	l.group.Yield()
}

// Complete reports whether all calls are answered.
func (l *lines) Complete() bool { return l.group.Open() == 0 }
