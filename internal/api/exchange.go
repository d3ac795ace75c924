package api

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/memory"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// exchange is a request on its way through the server: the response, of which the status
// and the error are remembered, and memory that the request borrows. It ends with the
// request, and the next one has it.
type exchange struct {
	http.ResponseWriter
	request *http.Request
	status  int   // 0: none yet
	err     error // that was answered as a problem, or as a part of the answer; nil: none was
	kind    error // of err, in words that hold nothing of the request
	span    tracing.Span

	scratch
}

// scratch is memory that one request borrows: its body, what that says, and its answer.
type scratch struct {
	caller     *auth.Caller // who asks; nil for whom nobody asked
	requestID  string
	body       decode.Body
	call       call        // what the body says
	operations []operation // likewise, of a batch
	out        []byte

	share memory.Share // the charged memory, beyond the free part
}

// begin returns an exchange for what w answers to r. It is to be ended. The memory that an earlier
// request left may be more than this one needs: where there is no room for it, it does without.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := s.exchanges.Get().(*exchange)
	x.ResponseWriter, x.request = w, r
	if !x.share.Hold(x.body.Len(), cap(x.out)) {
		x.body.Forget()
		x.out = nil
	}
	return x
}

// Bounds of what an exchange keeps: the rare long answer, or a list of many policies,
// does not stay in memory.
const (
	maxKeptAnswer     = 128 << 10 // bytes, where a decision takes about half a kilobyte
	maxKeptOperations = 128       // at some 500 bytes each
)

// end forgets the request, and keeps x for another one.
func (s *Server) end(x *exchange) {
	x.share.Release()
	if !x.body.Reset() || cap(x.out) > maxKeptAnswer || cap(x.operations) > maxKeptOperations {
		return // somebody sent or was told more than most
	}
	clear(x.operations)
	*x = exchange{scratch: scratch{body: x.body, operations: x.operations[:0], out: x.out, share: x.share}}
	s.exchanges.Put(x)
}

// readJSON reads the body of r, of most bytes, as one JSON value.
func (m *scratch) readJSON(r *http.Request, most int64) (decode.Value, error) {
	return m.body.ReadJSON(r, most, &m.share)
}

// readKey reads {"policy", "identifier"} from the body of r, of a policy that the caller may use.
func (m *scratch) readKey(r *http.Request) (limiter.Demand, error) {
	return m.readDemand(r, decode.KeyNames)
}

// readDemand is readKey for a body that may have members of these names.
func (m *scratch) readDemand(r *http.Request, names []string) (d limiter.Demand, err error) {
	body, err := m.readJSON(r, decode.MaxBody)
	if err == nil {
		d, err = decode.ReadKey(body, names)
	}
	if err == nil {
		err = mayUse(m.caller, d.Policy)
	}
	return d, err
}

// reserve charges room for an answer. If there is none, nothing was done.
func (m *scratch) reserve(room int64) error {
	if !m.share.Reserve(m.body.Len(), room) {
		return &decode.CallError{Recorded: count.RecordedNo, Err: decode.ErrBusy}
	}
	return nil
}

// settle charges the memory that is used until the answer in out was sent, instead of the memory that was reserved. It
// reports whether there is room for it.
func (m *scratch) settle() bool {
	if cap(m.operations) > maxKeptOperations {
		m.operations = nil // their outcome is in out
	}
	m.body.Shrink()
	return m.share.Settle(m.body.Len(), cap(m.out))
}

// failure returns the error that is the server's, nil if there is none.
func (x *exchange) failure() error {
	if x.status >= http.StatusBadRequest && x.status < http.StatusInternalServerError {
		return nil
	}
	return x.err
}

// WriteHeader remembers the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
		if !x.body.Whole() {
			connections.Unread(x.ResponseWriter, x.request)
		}
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write sends 200 first when no status was sent.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(b)
}

// Unwrap returns the response for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// measuredLen is how long a body is that net/http finds out the length of itself, for
// nothing: "under a few KB", as http.ResponseWriter has it.
const measuredLen = 1 << 10

// write answers a. It reports false, and has sent nothing, where there is no room for a long answer
// to a request that changes nothing.
func (x *exchange) write(a answer) (sent bool) {
	h := x.Header()
	if reserved := x.share.Reserved(); reserved > maxKeptAnswer {
		x.out = slices.Grow(x.out[:0], int(reserved)/2)
	}
	status, body := a.Render(h, x.out[:0])
	x.out = body
	changes := x.request.Method == http.MethodPost || x.request.Method == http.MethodPut
	if (!x.share.Empty() || cap(body) > memory.FreeAnswer) && !x.settle() && !changes {
		x.out = nil
		return false
	}
	if len(body) > measuredLen {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.WriteHeader(status)
	_, _ = x.ResponseWriter.Write(body) // it fails when the client is gone, and there is nobody else to tell
	return true
}
