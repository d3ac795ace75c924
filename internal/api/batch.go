package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Bounds of a batch.
const (
	maxOperations = 1000
	// batchWorkers is how many operations are decided at the same time: at a few
	// milliseconds each a full batch takes a tenth of a second, and one batch leaves
	// the store to others.
	batchWorkers = 32
	// batchTime is how long operations of a batch begin: with the last one's store
	// timeout it ends before a shutdown cuts it off, and before its writeTimeout.
	batchTime = 4 * time.Second
)

// operation is one of a batch: a call, and what is wrong with it.
type operation struct {
	call
	err     error
	problem *problem // that err is
}

// operations are what a batch may do, as "op" has them.
var operations = []string{string(limiter.OpCheck), string(limiter.OpRecord), string(limiter.OpTake)}

// operationNames are the members of an operation: those of a body, and what says which.
var operationNames = append(slices.Clip(takeNames), "reserve_ms", "reservation", "op", "idempotency_key")

// batch is what a batch asks for.
type batch struct {
	ops   []operation
	lines bool // each result in a line, as soon as it is there
}

// decodeBatch reads {"operations": [...]}. What is wrong with one operation is in its
// place.
func decodeBatch(r *http.Request, m *scratch) (b batch, err error) {
	if err := refuseIdempotencyKey(r.Header); err != nil {
		return b, err
	}
	body, err := readJSON(r, m, maxBatchLen)
	if err != nil {
		return b, err
	}
	seen, err := readObject(body, []string{"operations"}, func(_ string, v value) (err error) {
		b.ops, err = m.readOperations(v)
		return err
	})
	if err == nil && !seen.has("operations") {
		err = wrong("operations", "It is missing.")
	}
	b.lines = acceptsLines(r.Header)
	if err == nil {
		err = m.reserve(m.roomOf(b.ops))
	}
	return b, err
}

func (m *scratch) readOperations(v value) ([]operation, error) {
	if v[0] != '[' {
		return nil, v.not("an array of operations")
	}
	m.elements = slices.AppendSeq(m.elements[:0], v.elements())
	n := len(m.elements)
	if n == 0 || n > maxOperations {
		return nil, wrong("", "A batch has 1 to "+strconv.Itoa(maxOperations)+" operations, and "+strconv.Itoa(n)+" are here.")
	}
	if n > cap(m.operations) {
		m.operations = make([]operation, n)
	}
	m.operations = m.operations[:n]
	for i, e := range m.elements {
		m.operations[i].place = i + 1
		m.operations[i].readFrom(e, m.caller)
	}
	return m.operations, nil
}

// readFrom fills in o from {"op", "idempotency_key", "reserve_ms", "reservation"} and
// what a body has. It is for caller, who may not be permitted to ask for it.
func (o *operation) readFrom(v value, caller *auth.Caller) {
	o.Caller = caller.Name
	err := o.read(v, operationNames)
	if err == nil && o.Op == "" {
		err = wrong("op", "It is missing: give one of "+strings.Join(operations, ", ")+".")
	}
	if err == nil {
		err = o.permitted(caller)
	}
	if err != nil { // the path is made only then
		o.err = under(o.path(), err)
	}
}

// op returns the operation that v names.
func (v value) op() (limiter.Op, error) {
	name, err := v.text()
	if err == nil && !slices.Contains(operations, name) {
		err = wrong("", "It must be one of "+strings.Join(operations, ", ")+".")
	}
	return limiter.Op(name), err
}

// batch answers every operation on its own.
func (s *Server) batch(ctx context.Context, b batch) (answer, error) {
	switch {
	case s.inMemory:
		s.inTurn(ctx, b.ops)
	case b.lines:
		return &streamed{&batched{ops: b.ops}, s, ctx}, nil
	default:
		s.inLanes(ctx, b.ops, lanesOf(b.ops, s.canonical), nobody)
	}
	if err := ctx.Err(); err != nil {
		return nil, &callError{recorded: limiter.RecordedUnknown, err: fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)}
	}
	return newBatched(b.ops), nil
}

// inTurn decides one operation after the other until ctx ends: where none waits for anybody, all of
// them are done within milliseconds, and sooner than they are shared out.
func (s *Server) inTurn(ctx context.Context, ops []operation) {
	for i := range ops {
		if ctx.Err() != nil { // nobody waits for the rest
			return
		}
		if o := &ops[i]; o.err == nil {
			o.err = s.operate(ctx, &o.call)
		}
	}
}

// inLanes decides operations that are independent of each other, as their lanes say, at the same
// time, and tells which have been.
func (s *Server) inLanes(ctx context.Context, ops []operation, lanes [][]int, tell func(at ...int)) {
	began := s.opts.Now()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(batchWorkers, len(lanes)) {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(len(lanes)); i = next.Add(1) {
				s.inLane(ctx, began, ops, lanes[i-1], tell)
			}
		})
	}
	workers.Wait()
}

// nobody is told which operations have been decided.
func nobody(...int) {}

// operateInTime decides one operation if there is time left for it.
func (s *Server) operateInTime(ctx context.Context, began time.Time, c *call) error {
	if ctx.Err() != nil || s.opts.Now().Sub(began) >= batchTime {
		return c.failed(limiter.RecordedNo, errNotBegun)
	}
	return s.operate(ctx, c)
}

// operate decides one operation. A panic is its error alone.
func (s *Server) operate(ctx context.Context, c *call) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = s.panicked(ctx, c, cause)
		}
	}()
	return s.ask(ctx, c)
}

// panicked logs the cause of a panic where it is called, and returns it as the error of c.
func (s *Server) panicked(ctx context.Context, c *call, cause any) error {
	s.opts.Logger.ErrorContext(ctx, "panic in an operation", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return c.failed(limiter.RecordedUnknown, errPanic)
}

// errNotBegun is an operation that the time of its batch did not suffice for.
var errNotBegun = &requestError{
	kind:   limiter.ErrOverloaded,
	detail: "Its batch took " + strconv.Itoa(int(batchTime.Seconds())) + " seconds before it: send it again, in a smaller batch.",
}

// batched is the answer of batch.
type batched struct {
	ops []operation
	err error // the first that is the server's failure; nil: there is none

	refused error // the first that is who asks; nil: there is none
}

func newBatched(ops []operation) *batched {
	a := &batched{ops: ops}
	for i := range ops {
		o := &ops[i]
		if o.err == nil {
			continue
		}
		o.problem = problemOf(o.err)
		if a.refused == nil && o.problem.status == http.StatusForbidden {
			a.refused = o.err
		}
		if a.err == nil && o.problem.status >= http.StatusInternalServerError {
			a.err = o.err
		}
	}
	return a
}

// failure returns the first error that is the server's.
func (a *batched) failure() error { return a.err }

// render writes the results in the order of the operations.
func (a *batched) render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = contentTypeJSON
	b = append(b, `{"results":[`...)
	for i := range a.ops {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(a.ops[i].appendMembers(append(b, '{')), '}')
	}
	return http.StatusOK, append(b, "]}\n"...)
}

// appendMembers appends the members of o's result, without braces. Its status is among
// them.
func (o *operation) appendMembers(b []byte) []byte {
	if o.problem != nil {
		return appendProblem(b, o.problem)
	}
	if o.decided.Allowed {
		b = appendInt(b, `"status":`, http.StatusOK)
		b = append(b, ',')
	}
	b = o.decided.appendMembers(b)
	if o.decided.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return b
}
