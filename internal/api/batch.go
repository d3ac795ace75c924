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
	err error
}

// operations are what a batch may do, as "op" has them.
var operations = []string{string(limiter.OpCheck), string(limiter.OpRecord), string(limiter.OpTake)}

// operationNames are the members of an operation: those of a body, and what says which.
var operationNames = append(slices.Clip(takeNames), "reserve_ms", "reservation", "op", "idempotency_key")

// decodeBatch reads {"operations": [...]}. What is wrong with one operation is in its
// place.
func decodeBatch(r *http.Request, m *scratch) (ops []operation, err error) {
	if err := refuseIdempotencyKey(r.Header); err != nil {
		return nil, err
	}
	body, err := readJSON(r, m, maxBatchLen)
	if err != nil {
		return nil, err
	}
	seen, err := readObject(body, []string{"operations"}, func(_ string, v value) (err error) {
		ops, err = readOperations(v)
		return err
	})
	if err == nil && !seen.has("operations") {
		err = wrong("operations", "It is missing.")
	}
	return ops, err
}

func readOperations(v value) ([]operation, error) {
	if v[0] != '[' {
		return nil, v.not("an array of operations")
	}
	elements := slices.Collect(v.elements())
	if len(elements) == 0 || len(elements) > maxOperations {
		return nil, wrong("", "A batch has 1 to "+strconv.Itoa(maxOperations)+" operations, and "+strconv.Itoa(len(elements))+" are here.")
	}
	ops := make([]operation, len(elements))
	for i, e := range elements {
		ops[i].place = i + 1
		ops[i].readFrom(e)
	}
	return ops, nil
}

// readFrom fills in o from {"op", "idempotency_key", "reserve_ms", "reservation"} and
// what a body has.
func (o *operation) readFrom(v value) {
	err := o.read(v, operationNames)
	if err == nil && o.Op == "" {
		err = wrong("op", "It is missing: give one of "+strings.Join(operations, ", ")+".")
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
func (s *Server) batch(ctx context.Context, ops []operation) (answer, error) {
	a := &batched{results: make([]result, len(ops))}
	lanes := lanesOf(ops)
	began := s.opts.Now()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(batchWorkers, len(lanes)) {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(len(lanes)); i = next.Add(1) {
				for _, at := range lanes[i-1] {
					ops[at].err = s.operate(ctx, began, &ops[at].call, &a.results[at])
				}
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, &callError{recorded: limiter.RecordedUnknown, err: fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)}
	}
	for i := range ops {
		if ops[i].err != nil {
			a.fail(i, ops[i].err)
		}
	}
	return a, nil
}

// operate decides one operation. A panic is its error alone.
func (s *Server) operate(ctx context.Context, began time.Time, c *call, into *result) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.opts.Logger.ErrorContext(ctx, "panic in an operation", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = c.failed(limiter.RecordedUnknown, errPanic)
		}
	}()
	if ctx.Err() != nil || s.opts.Now().Sub(began) >= batchTime {
		return c.failed(limiter.RecordedNo, errNotBegun)
	}
	into.decided, err = s.ask(ctx, c)
	return err
}

// errNotBegun is an operation that the time of its batch did not suffice for.
var errNotBegun = &requestError{
	kind:   limiter.ErrOverloaded,
	detail: "Its batch took " + strconv.Itoa(int(batchTime.Seconds())) + " seconds before it: send it again, in a smaller batch.",
}

// batched is the answer of batch.
type batched struct {
	results []result
	err     error // the first that is the server's failure; nil: there is none
}

// result is what became of one operation.
type result struct {
	*decided
	problem *problem // nil: it was decided
}

func (a *batched) fail(i int, err error) {
	p := problemOf(err)
	a.results[i].problem = p
	if a.err == nil && p.status >= http.StatusInternalServerError {
		a.err = err
	}
}

// failure returns the first error that is the server's.
func (a *batched) failure() error { return a.err }

// render writes the results in the order of the operations.
func (a *batched) render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = contentTypeJSON
	b = append(b, `{"results":[`...)
	for i := range a.results {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(a.results[i].appendMembers(append(b, '{')), '}')
	}
	return http.StatusOK, append(b, "]}\n"...)
}

// appendMembers appends the members of r, without braces. Its status is among them.
func (r *result) appendMembers(b []byte) []byte {
	if r.problem != nil {
		return appendProblem(b, r.problem)
	}
	if r.Allowed {
		b = appendInt(b, `"status":`, http.StatusOK)
		b = append(b, ',')
	}
	b = r.decided.appendMembers(b)
	if r.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return b
}
