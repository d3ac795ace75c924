package http1

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxHeld      = 4 << 10                // bytes of an answer that are sent together with its head
	maxKept      = 64 << 10               // bytes of memory that a connection keeps for its next answer
	maxDiscarded = 256 << 10              // bytes of a body that nobody has read: for more, the connection is closed
	lingerFor    = 500 * time.Millisecond // until a client that is still sending has read its answer
)

// response is the answer to a connection's present request. All of it is held until the
// handler returns, but for an answer of more than maxHeld bytes that declares its length, and for one that is flushed.
type response struct {
	conn   *conn
	header http.Header
	status int          // 0: none yet
	out    bytes.Buffer // the head as of WriteHeader; the rest of it depends on the body
	held   []byte       // of the body
	sent   bool         // all of it
	flows  bool         // in chunks: the handler has flushed
	err    error        // of sending it

	length string // of the body, from the header; empty: it has none
	typed  bool   // the header has a media type
	last   bool   // the connection ends after it
}

func (w *response) begin() {
	clear(w.header)
	w.out.Reset()
	*w = response{conn: w.conn, header: w.header, out: w.out, held: w.held[:0]}
}

// Header returns the header, which counts as it is when WriteHeader is called.
func (w *response) Header() http.Header { return w.header }

// endOfHead has the names that endHead writes.
var endOfHead = map[string]bool{"Connection": true, "Content-Length": true, "Date": true, "Transfer-Encoding": true}

// WriteHeader sets the status and the header, the first time. Informational ones are not sent.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	w.length = w.header.Get("Content-Length")
	_, w.typed = w.header["Content-Type"]
	w.last = strings.EqualFold(w.header.Get("Connection"), "close")
	w.out.WriteString("HTTP/1.1 ")
	w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(status), 10))
	w.out.WriteString(" ")
	if name := http.StatusText(status); name != "" {
		w.out.WriteString(name)
	} else {
		w.out.WriteString("status code " + strconv.Itoa(status))
	}
	w.out.WriteString("\r\n")
	_ = w.header.WriteSubset(&w.out, endOfHead) // into memory
}

// Write adds to the body. The error is http.ErrBodyNotAllowed, http.ErrContentLength or the
// connection's.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.err != nil && !w.sent:
		return 0, w.err
	case w.sent:
		w.err = http.ErrContentLength // ends the connection: the client can't tell where the body ends
		return 0, w.err
	case len(p) > maxHeld && len(w.held) == 0 && w.length == strconv.Itoa(len(p)):
		w.send(p)
		return len(p), w.err
	}
	w.held = append(w.held, p...)
	return len(p), nil
}

func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// SetReadDeadline bounds how long the rest of the request's body may take, instead of the
// ReadTimeout.
func (w *response) SetReadDeadline(by time.Time) error {
	w.conn.body.timed = true
	w.conn.setReadBy(by)
	return nil
}

// Flush sends the bytes held; the answer goes on in chunks, unless it has a Content-Length or no body, which is held as
// a whole.
func (w *response) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.sent || w.err != nil || w.length != "" || !hasBody(w.status) || w.flows && len(w.held) == 0 {
		return
	}
	w.sendChunk("")
}

// sendChunk sends the bytes held as a chunk, with the head before it if it is the first, and end
// after it.
func (w *response) sendChunk(end string) {
	if w.flows {
		w.out.Reset()
		w.extendDeadline(time.Now())
	} else {
		w.flows = true
		w.endHead(w.held)
	}
	if len(w.held) > 0 {
		_, _ = fmt.Fprintf(&w.out, "%x\r\n%s\r\n", len(w.held), w.held)
	}
	w.out.WriteString(end)
	w.held = w.held[:0]
	_, w.err = w.conn.rwc.Write(w.out.Bytes())
}

// end sends the bytes held, and reports whether the connection can have another request.
func (w *response) end() bool {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.flows && w.err == nil:
		w.sendChunk("0\r\n\r\n")
	case !w.flows && !w.sent:
		w.send(w.held)
	}
	if max(cap(w.held), w.out.Cap()) > maxKept {
		w.held, w.out = nil, bytes.Buffer{}
	}
	if w.err == nil && !w.conn.body.whole.Load() {
		w.linger()
	}
	return !w.last && w.err == nil
}

// send sends the answer, of which body is the body.
func (w *response) send(body []byte) {
	w.sent = true
	w.endHead(body)
	if len(body) <= maxHeld {
		w.out.Write(body)
		body = nil
	}
	if _, w.err = w.conn.rwc.Write(w.out.Bytes()); w.err == nil && len(body) > 0 {
		_, w.err = w.conn.rwc.Write(body)
	}
}

// endHead adds to the head the fields that depend on the connection and on the body, of which this is all, or the
// beginning. It is sent at once.
func (w *response) endHead(body []byte) {
	c := w.conn
	if !w.last && !c.body.whole.Load() { // else a client that only sends never reads its answer
		_, _ = io.CopyN(io.Discard, &c.body, maxDiscarded)
	}
	w.last = w.last || !c.body.whole.Load() || c.state.Load() == stopped
	now := time.Now()
	w.extendDeadline(now)
	if !w.typed && len(body) > 0 {
		w.out.WriteString("Content-Type: " + http.DetectContentType(body) + "\r\n")
	}
	switch {
	case w.flows:
		w.out.WriteString("Transfer-Encoding: chunked\r\n")
	case hasBody(w.status):
		w.out.WriteString("Content-Length: ")
		w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(len(body)), 10))
		w.out.WriteString("\r\n")
	}
	if w.last {
		w.out.WriteString("Connection: close\r\n")
	}
	w.out.WriteString("Date: ")
	w.out.Write(now.UTC().AppendFormat(w.out.AvailableBuffer(), http.TimeFormat))
	w.out.WriteString("\r\n\r\n")
}

// extendDeadline sets the deadline of the bytes that are sent now.
func (w *response) extendDeadline(now time.Time) {
	c := w.conn
	if timeout := c.server.WriteTimeout; timeout > 0 && c.writeBy.Sub(now) < timeout {
		c.writeBy = now.Add(2 * timeout)
		_ = c.rwc.SetWriteDeadline(c.writeBy)
	}
}

// linger closes the sending side, and waits a little for the client to do likewise: what
// it still sends would have the answer thrown away.
func (w *response) linger() {
	c := w.conn
	_ = closeWrite(c.rwc)
	c.setReadBy(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.rwc, maxDiscarded)
}
