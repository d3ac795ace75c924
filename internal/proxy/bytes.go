package proxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// body counts the bytes that are read from it.
type body struct {
	io.ReadCloser
	passed *atomic.Int64
	writer *writer      // is called before and after each read; may be nil
	failed *atomic.Bool // is set if the body breaks off; may be nil
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
	case b.failed != nil && !errors.Is(err, http.ErrBodyReadAfterClose): // net/http must not wait for the rest either
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

// writer is an answer that remembers its status, and bounds the time that it waits for the client.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration
	request *http.Request
	own     bool // the answer is the proxy's own, which does not read the request
	drained bool // net/http reads the rest of the request
	older   bool // the client speaks HTTP/1.0, without interim answers
	status  int  // 0: none yet
}

func newWriter(w http.ResponseWriter, stalled time.Duration) *writer {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w), stalled: stalled}
}

// WriteHeader remembers the status, except that of interim answers.
func (w *writer) WriteHeader(status int) {
	switch {
	case status >= http.StatusOK || status == http.StatusSwitchingProtocols:
		w.status = status
		w.leaveUnread()
	case status == http.StatusContinue || w.older:
		return // net/http sends 100 Continue itself once the application reads
	default:
		keepEndToEnd(w.Header(), false)
	}
	defer w.giveTime()()
	w.ResponseWriter.WriteHeader(status)
}

// Write gives the client time to receive p.
func (w *writer) Write(p []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	defer w.giveTime()()
	return w.ResponseWriter.Write(p)
}

// FlushError gives the client time to receive the written bytes.
func (w *writer) FlushError() error {
	defer w.giveTime()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap returns the answer for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// giveTime bounds the time of writes until the function that it returns is called. Times between writes of the
// application have no bound.
func (w *writer) giveTime() (done func()) {
	w.extendWrite()
	return w.taken
}

// leaveUnread lets an answer of the proxy's own not wait for the rest of the request.
func (w *writer) leaveUnread() {
	if w.own {
		w.own, w.drained = false, false
		connections.Unread(w.ResponseWriter, w.request)
	}
}

// begin gives the client time for the first part of its request r. With HTTP/1, net/http reads the rest of the request
// before it answers, and must not wait for a part without a bound.
func (w *writer) begin(r *http.Request) {
	w.request, w.own, w.older = r, true, !r.ProtoAtLeast(1, 1)
	if w.drained = r.ProtoMajor == 1 && r.ContentLength != 0; w.drained {
		w.extendRead()
	}
}

// finish gives the client time while net/http reads the rest of the request and then sends the answer.
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

// arrived removes the bound once a part has arrived. If net/http may read the next part, it does so only at the end of
// the body.
func (w *writer) arrived(whole bool) {
	if whole || !w.drained {
		_ = w.control.SetReadDeadline(time.Time{})
	}
}

// buffers is a pool of buffers for copying bodies.
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

// Put takes buffer back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferLen]byte)(buffer)) }
