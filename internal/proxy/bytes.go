package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// body counts the bytes that are read of it.
type body struct {
	io.ReadCloser
	passed *atomic.Int64
	writer *writer      // is told before each part that is read, and after it; may be nil
	failed *atomic.Bool // set when it ends before its end; may be nil
}

// Read counts what it reads.
func (b *body) Read(p []byte) (int, error) {
	if b.writer != nil {
		b.writer.extendRead()
	}
	n, err := b.ReadCloser.Read(p)
	b.passed.Add(int64(n))
	switch {
	case err == nil || errors.Is(err, io.EOF):
		if b.writer != nil {
			b.writer.arrived(err != nil)
		}
	case b.failed != nil && !errors.Is(err, http.ErrBodyReadAfterClose): // net/http is not to wait for the rest either
		b.failed.Store(true)
	}
	return n, err
}

// upgraded counts the bytes both ways of a connection that no longer speaks HTTP.
type upgraded struct {
	io.ReadWriteCloser
	received, sent *atomic.Int64
}

// Read counts what the application sends.
func (u *upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Read(p)
	u.sent.Add(int64(n))
	return n, err
}

// Write counts what the client sends.
func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Write(p)
	u.received.Add(int64(n))
	return n, err
}

// writer is an answer that remembers its status, and does not wait for ever for a client.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration
	request *http.Request
	own     bool // the answer is the proxy's, which reads nothing of the request
	drained bool // by net/http, of what nobody reads of the request
	older   bool // than HTTP/1.1 is the client, which knows no interim answers
	status  int  // 0: none yet
}

func newWriter(w http.ResponseWriter, stalled time.Duration) *writer {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w), stalled: stalled}
}

// WriteHeader remembers the status, but for that of interim answers.
func (w *writer) WriteHeader(status int) {
	switch {
	case status >= http.StatusOK || status == http.StatusSwitchingProtocols:
		w.status = status
		w.leaveUnread()
	case status == http.StatusContinue || w.older:
		return // net/http says itself to continue, once the application reads
	default:
		keepEndToEnd(w.Header(), false)
	}
	defer w.giveTime()()
	w.ResponseWriter.WriteHeader(status)
}

// Write gives the client time to take p in.
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	defer w.giveTime()()
	return w.ResponseWriter.Write(p)
}

// FlushError gives the client time to take in the bytes written.
func (w *writer) FlushError() error {
	defer w.giveTime()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap returns the answer for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// giveTime bounds how long writes may take until the function that it returns is called. It does
// not bound how long the application writes nothing.
func (w *writer) giveTime() (done func()) {
	w.extendWrite()
	return w.taken
}

// leaveUnread has an answer of the proxy's own not wait for the rest of its request.
func (w *writer) leaveUnread() {
	if w.own {
		w.own, w.drained = false, false
		connections.Unread(w.ResponseWriter, w.request)
	}
}

// begin gives the client time for the first part of its request. net/http reads by HTTP/1 what
// nobody else does before it answers: of r, it is to wait for no part for longer.
func (w *writer) begin(r *http.Request) {
	w.request, w.own, w.older = r, true, !r.ProtoAtLeast(1, 1)
	if w.drained = r.ProtoMajor == 1 && r.ContentLength != 0; w.drained {
		w.extendRead()
	}
}

// finish gives the client time for what net/http has yet to do: to read what nobody has read of
// the request, and then to send.
func (w *writer) finish() {
	if w.drained {
		w.extendRead()
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(2 * w.stalled))
}

func (w *writer) extendWrite() { _ = w.control.SetWriteDeadline(time.Now().Add(w.stalled)) }

func (w *writer) taken() { _ = w.control.SetWriteDeadline(time.Time{}) }

// extendRead gives the client time for a part of its request.
func (w *writer) extendRead() { _ = w.control.SetReadDeadline(time.Now().Add(w.stalled)) }

// arrived takes the bound away once a part is there, and the whole of it if net/http may be the
// one to read the next.
func (w *writer) arrived(whole bool) {
	if whole || !w.drained {
		_ = w.control.SetReadDeadline(time.Time{})
	}
}

// buffers are those that bodies are copied through.
type buffers struct{ pool sync.Pool }

// bufferLen is as long as io.Copy's.
const bufferLen = 32 << 10

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferLen]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferLen)
}

// Put takes it back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferLen]byte)(buffer)) }
