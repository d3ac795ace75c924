package api

import (
	"net/http"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/auth"
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

	scratch
}

// scratch is memory that one request borrows: its body, what that says, and its answer.
type scratch struct {
	caller     *auth.Caller // who asks; nil for whom nobody asked
	requestID  string
	in         []byte
	whole      bool        // in is all of the body
	call       call        // what in says
	operations []operation // likewise, of a batch
	elements   []value     // of in, while it is read
	out        []byte

	bodies   *bodies // nil: nothing bounds them
	charged  int64   // that in and the answer have taken of them
	reserved int64   // of that, for an answer that is not made yet
}

// begin returns an exchange for what w answers to r. It is to be ended.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := s.exchanges.Get().(*exchange)
	x.ResponseWriter, x.request = w, r
	x.pay()
	return x
}

// Bounds of what an exchange keeps: the rare long answer, or a list of many policies,
// does not stay in memory.
const (
	maxScratchLen     = 128 << 10 // bytes, where a decision takes about half a kilobyte
	maxKeptOperations = 128       // at some 500 bytes each
)

// end forgets the request, and keeps x for another one.
func (s *Server) end(x *exchange) {
	x.discharge()
	if max(cap(x.in), cap(x.out)) > maxScratchLen || cap(x.operations) > maxKeptOperations ||
		cap(x.elements) > maxOperations { // somebody sent more than a batch takes
		return
	}
	clear(x.operations)
	clear(x.elements)
	*x = exchange{scratch: scratch{in: x.in, operations: x.operations[:0], elements: x.elements[:0], out: x.out, bodies: x.bodies}}
	s.exchanges.Put(x)
}

// WriteHeader remembers the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
		if !x.whole {
			Unread(x.ResponseWriter, x.request)
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
	if x.reserved > maxScratchLen {
		x.out = slices.Grow(x.out[:0], int(x.reserved)/2)
	}
	status, body := a.render(h, x.out[:0])
	x.out = body
	if (x.charged > 0 || cap(body) > freeAnswerLen) && !x.settle() && x.request.Method != http.MethodPost {
		x.out = nil
		return false
	}
	if len(body) > measuredLen {
		h["Content-Length"] = []string{itoa(int64(len(body)))}
	}
	x.WriteHeader(status)
	_, _ = x.ResponseWriter.Write(body) // it fails when the client is gone, and there is nobody else to tell
	return true
}
