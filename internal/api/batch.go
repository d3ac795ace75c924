package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Bounds of a batch.
const (
	maxBatchLen   = 1 << 20 // bytes: 1000 operations of a kilobyte
	maxOperations = 1000
	// batchWorkers is the number of operations decided at the same time. At a few milliseconds each, a full batch takes a
	// tenth of a second, and leaves room for others at the store.
	batchWorkers = 32
	// batchTime is the time within which operations of a batch are begun. With the store timeout of the last one, the
	// batch ends before a shutdown would cut it off, and before writeTimeout.
	batchTime = 4 * time.Second
)

// operation is one call of a batch, with its error.
type operation struct {
	call
	err     error
	problem *encode.Problem // that err is
}

// batch is the operations of a batch.
type batch struct {
	ops   []operation
	lines bool // each result in a line, as soon as it is there
}

// decodeBatch reads {"operations": [...]}. A mistake in one operation becomes the result of that operation.
func decodeBatch(r *http.Request, m *scratch) (b batch, err error) {
	if err := decode.RefuseIdempotencyKey(r.Header); err != nil {
		return b, err
	}
	body, err := m.readJSON(r, maxBatchLen)
	if err != nil {
		return b, err
	}
	seen, err := decode.ReadObject(body, []string{"operations"}, func(_ string, v decode.Value) (err error) {
		b.ops, err = m.readOperations(v)
		return err
	})
	if err == nil {
		err = seen.Require("operations")
	}
	b.lines = acceptsLines(r.Header)
	if err == nil {
		err = m.reserve(m.roomOf(b.ops))
	}
	return b, err
}

func (m *scratch) readOperations(v decode.Value) ([]operation, error) {
	if v[0] != '[' {
		return nil, v.Not("an array of operations")
	}
	elements := m.body.Elements(v)
	n := len(elements)
	if n == 0 || n > maxOperations {
		return nil, decode.Wrong("", "A batch has 1 to "+strconv.Itoa(maxOperations)+" operations, and "+strconv.Itoa(n)+" are here.")
	}
	if n > cap(m.operations) {
		m.operations = make([]operation, n)
	}
	m.operations = m.operations[:n]
	for i, e := range elements {
		m.operations[i].asked.Place = i + 1
		m.operations[i].readFrom(e, m.caller)
	}
	return m.operations, nil
}

// readFrom fills in o from {"op", "idempotency_key", "reserve_ms", "reservation", "receipt"} and the members of a call.
// Its error may be that caller is not permitted to make it.
func (o *operation) readFrom(v decode.Value, caller *auth.Caller) {
	c := &o.asked
	c.Caller = caller.Name
	err := c.Read(v, decode.NamesOf(""))
	if err == nil && c.Op == "" {
		err = decode.Wrong("op", "op is missing: give one of "+strings.Join(decode.Operations, ", ")+".")
	}
	if err == nil {
		err = permitted(caller, c)
	}
	if err != nil { // the path is made only then
		o.err = decode.Under(c.Path(), err)
	}
}

// roomOf returns the memory for deciding and answering ops.
func (m *scratch) roomOf(ops []operation) (sum int64) {
	for i := range ops {
		c := &ops[i].asked
		sum += m.share.Room(&c.Call, c.Listed)
	}
	return sum
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
		return nil, &decode.CallError{Recorded: count.RecordedUnknown, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, err)}
	}
	return newBatched(b.ops), nil
}

// inTurn decides one operation after the other until ctx ends. Over a store in memory, that is faster than sharing them
// among goroutines.
func (s *Server) inTurn(ctx context.Context, ops []operation) {
	for i := range ops {
		if ctx.Err() != nil { // the client left
			return
		}
		if o := &ops[i]; o.err == nil {
			o.err = s.operate(ctx, &o.call)
		}
	}
}

// inLanes decides operations of different lanes at the same time, and calls tell with those that are decided.
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

// nobody ignores which operations are decided.
func nobody(...int) {}

// operateInTime decides one operation if there is time left for it.
func (s *Server) operateInTime(ctx context.Context, began time.Time, c *call) error {
	if ctx.Err() != nil || s.opts.Now().Sub(began) >= batchTime {
		return c.asked.Failed(count.RecordedNo, errNotBegun)
	}
	return s.operate(ctx, c)
}

// operate decides one operation. A panic is its error alone.
func (s *Server) operate(ctx context.Context, c *call) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.panics.Panic(ctx, s.opts.Logger, "panic in an operation", cause, s.opts.Now())
			err = c.asked.Failed(count.RecordedUnknown, errPanic)
		}
	}()
	return s.ask(ctx, c)
}

// errNotBegun is the error of an operation that could not begin within the time of its batch.
var errNotBegun = &decode.Error{
	Kind:   store.ErrOverloaded,
	Detail: "Its batch took " + strconv.Itoa(int(batchTime.Seconds())) + " seconds before it: send it again, in a smaller batch.",
}

// batched is the answer of batch.
type batched struct {
	ops []operation
	err error // the first that is the server's failure; nil: there is none

	refused error // the first that is about the caller; nil: there is none
}

func newBatched(ops []operation) *batched {
	a := &batched{ops: ops}
	for i := range ops {
		o := &ops[i]
		if o.err == nil {
			continue
		}
		o.problem = encode.ProblemOf(o.err)
		if a.refused == nil && o.problem.Status == http.StatusForbidden {
			a.refused = o.err
		}
		if a.err == nil && o.problem.Status >= http.StatusInternalServerError {
			a.err = o.err
		}
	}
	return a
}

// Render writes the results in the order of the operations.
func (a *batched) Render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = encode.ContentTypeJSON
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
		return o.problem.AppendMembers(b)
	}
	if o.asked.Op == decode.OpConfirm {
		return encode.AppendConfirmation(b, o.confirmation)
	}
	if o.decided.Allowed {
		b = encode.AppendInt(b, `"status":`, http.StatusOK)
		b = append(b, ',')
	}
	b = o.decided.AppendMembers(b)
	if o.decided.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return b
}
