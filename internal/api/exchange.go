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

// exchange is a request in progress: its response, with the status and the error, and memory that is reused by later
// requests.
type exchange struct {
	http.ResponseWriter
	request *http.Request
	status  int   // 0: none yet
	err     error // that was answered as a problem, or as a part of the answer; nil: none was
	kind    error // of err, without parts of the request
	span    tracing.Span

	scratch
}

// scratch is the reused memory of a request: its body, the decoded call, and the answer.
type scratch struct {
	caller     *auth.Caller // nil without authentication
	requestID  string
	body       decode.Body
	call       call        // in the body
	operations []operation // likewise, of a batch
	out        []byte

	share memory.Share // the charged memory, beyond the free part
}

// begin returns an exchange for r, to be ended by end. If there is no room for the memory of an earlier request, it
// drops that.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := s.exchanges.Get().(*exchange)
	x.ResponseWriter, x.request = w, r
	if !x.share.Hold(x.body.Len(), cap(x.out)) {
		x.body.Forget()
		x.out = nil
	}
	return x
}

// Bounds of the memory that an exchange keeps: rare long answers do not stay in memory.
const (
	maxKeptAnswer     = 128 << 10 // bytes, where a decision takes about half a kilobyte
	maxKeptOperations = 128       // at some 500 bytes each
)

// end forgets the request, and keeps x for a later one.
func (s *Server) end(x *exchange) {
	x.share.Release()
	if !x.body.Reset() || cap(x.out) > maxKeptAnswer || cap(x.operations) > maxKeptOperations {
		return // it is larger than most
	}
	clear(x.operations)
	*x = exchange{scratch: scratch{body: x.body, operations: x.operations[:0], out: x.out, share: x.share}}
	s.exchanges.Put(x)
}

// readJSON reads the body of r, of most bytes, as one JSON value.
func (m *scratch) readJSON(r *http.Request, most int64) (decode.Value, error) {
	return m.body.ReadJSON(r, most, &m.share)
}

// readKey reads {"policy", "identifier"} from the body of r. The caller must be permitted to use the policy.
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

// reserve charges room for an answer. Its error says that nothing was counted.
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

// measuredLen is the length up to which net/http sets Content-Length itself: "under a few KB", as http.ResponseWriter
// says.
const measuredLen = 1 << 10

// write sends a. If there is no room for a long answer to a request that changes nothing, it sends nothing and returns
// false.
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
	_, _ = x.ResponseWriter.Write(body) // it fails if the client is gone
	return true
}
