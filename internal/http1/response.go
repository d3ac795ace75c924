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
	maxHeld      = 4 << 10                // bytes of a body that are sent together with the head
	maxKept      = 64 << 10               // bytes of memory that a connection keeps for its next answer
	maxDiscarded = 256 << 10              // bytes of an unread body that are read; for more, the connection is closed
	lingerFor    = 500 * time.Millisecond // for a client that still sends, to read its answer
)

// response is the answer to a connection's current request. It is held until the handler returns, unless it has more than
// maxHeld bytes and declares its length, or is flushed.
type response struct {
	conn   *conn
	header http.Header
	status int          // 0: none yet
	out    bytes.Buffer // the head, without the fields that depend on the body
	held   []byte       // bytes of the body
	sent   bool         // all was sent
	flows  bool         // it is sent in chunks, since the handler has flushed
	err    error        // of sending

	length string // Content-Length; empty: the header has none
	typed  bool   // the header has a media type
	last   bool   // the connection ends after the answer
}

func (w *response) begin() {
	clear(w.header)
	w.out.Reset()
	*w = response{conn: w.conn, header: w.header, out: w.out, held: w.held[:0]}
}

// Header returns the header. Changes after WriteHeader have no effect.
func (w *response) Header() http.Header { return w.header }

// endOfHead has the names of the fields that endHead writes.
var endOfHead = map[string]bool{"Connection": true, "Content-Length": true, "Date": true, "Transfer-Encoding": true}

// WriteHeader sets the status and the header, the first time. It ignores informational statuses.
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

// Write appends to the body. The error is http.ErrBodyNotAllowed, http.ErrContentLength or the connection's.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.err != nil && !w.sent:
		return 0, w.err
	case w.sent:
		w.err = http.ErrContentLength // the connection ends, because the client can't tell where the body does
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

// SetReadDeadline sets the deadline for the rest of the request's body, in place of the ReadTimeout. It returns nil.
func (w *response) SetReadDeadline(by time.Time) error {
	w.conn.body.timed = true
	w.conn.setReadBy(by)
	return nil
}

// Flush sends the held bytes as a chunk. It does nothing for an answer with a Content-Length, or without a body.
func (w *response) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.sent || w.err != nil || w.length != "" || !hasBody(w.status) || w.flows && len(w.held) == 0 {
		return
	}
	w.sendChunk("")
}

// sendChunk sends the held bytes as a chunk, after the head if it is the first, and before end.
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

// end sends the held bytes, and reports whether another request may follow.
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

// send sends the answer, with this body.
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

// endHead appends the fields that depend on the connection and on body, all of the body or its beginning. The caller sends
// the head at once.
func (w *response) endHead(body []byte) {
	c := w.conn
	if !w.last && !c.body.whole.Load() { // some clients read their answer only after they have sent everything
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

// extendDeadline moves the deadline of writes, if that is too close.
func (w *response) extendDeadline(now time.Time) {
	c := w.conn
	if timeout := c.server.WriteTimeout; timeout > 0 && c.writeBy.Sub(now) < timeout {
		c.writeBy = now.Add(2 * timeout)
		_ = c.rwc.SetWriteDeadline(c.writeBy)
	}
}

// linger closes the sending side, and waits a little for the client to do the same. Bytes that arrive after the close would
// make the client's system drop the answer.
func (w *response) linger() {
	c := w.conn
	_ = closeWrite(c.rwc)
	c.setReadBy(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.rwc, maxDiscarded)
}
