package http1

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxHeld      = 4 << 10                // bytes of an answer that are sent together with its head
	maxKept      = 64 << 10               // bytes of memory that a connection keeps for its next answer
	maxDiscarded = 256 << 10              // bytes of a body that nobody has read: for more, the connection is closed
	lingerFor    = 500 * time.Millisecond // until a client that is still sending has read its answer
)

// response is the answer to a connection's present request. All of it is held until the
// handler returns, but for an answer of more than maxHeld bytes which says how long it is, and
// for what is flushed.
type response struct {
	conn   *conn
	header http.Header
	status int    // 0: none yet
	head   []byte // as of WriteHeader; the rest of it depends on the body
	held   []byte // of the body
	sent   bool   // all of it
	flows  bool   // in chunks: what is sent was flushed
	err    error  // of sending it

	length string // of the body, as the header has it; empty: it does not say
	typed  bool   // the header says what the body is
	last   bool   // the connection ends after it
	names  []string
}

func (w *response) begin() {
	if w.header == nil {
		w.header = make(http.Header)
	}
	clear(w.header)
	*w = response{conn: w.conn, header: w.header, head: w.head[:0], held: w.held[:0], names: w.names}
}

// Header returns the header, which counts as it is when WriteHeader is called.
func (w *response) Header() http.Header { return w.header }

// WriteHeader sets the status and the header, the first time. Informational ones are not sent.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	if declared := w.header["Content-Length"]; len(declared) > 0 {
		w.length = declared[0]
	}
	_, w.typed = w.header["Content-Type"]
	w.last = slices.ContainsFunc(w.header["Connection"], isClose)
	w.appendHead()
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
		w.err = http.ErrContentLength // ends the connection: who knows what the client makes of it
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

// Flush sends what is held, and lets the answer go on: in chunks, unless it says how long it
// is, or has no body. Then all of it is held.
func (w *response) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.sent || w.err != nil || w.length != "" || !hasBody(w.status) || w.flows && len(w.held) == 0 {
		return
	}
	w.sendChunk("")
}

// sendChunk sends what is held as a chunk, with the head before it if it is the first, and end
// after it.
func (w *response) sendChunk(end string) {
	out := w.head
	if w.flows {
		out = out[:0]
		w.extendDeadline(time.Now())
	} else {
		w.flows = true
		w.sendable(w.held)
		out = w.head
	}
	if len(w.held) > 0 {
		out = append(strconv.AppendInt(out, int64(len(w.held)), 16), "\r\n"...)
		out = append(append(out, w.held...), "\r\n"...)
	}
	out = append(out, end...)
	w.head, w.held = out, w.held[:0]
	_, w.err = w.conn.rwc.Write(out)
}

// end sends what is held, and reports whether the connection can have another request.
func (w *response) end() bool {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.flows && w.err == nil:
		w.sendChunk("0\r\n\r\n")
	case !w.flows && !w.sent:
		w.send(w.held)
	}
	if max(cap(w.held), cap(w.head)) > maxKept {
		w.held, w.head = nil, nil
	}
	if w.err == nil && !w.conn.body.whole.Load() {
		w.linger()
	}
	return !w.last && w.err == nil
}

// send sends the answer, of which body is the body.
func (w *response) send(body []byte) {
	w.sent = true
	w.sendable(body)
	if len(body) <= maxHeld {
		w.head = append(w.head, body...)
		_, w.err = w.conn.rwc.Write(w.head)
		return
	}
	if _, w.err = w.conn.rwc.Write(w.head); w.err == nil {
		_, w.err = w.conn.rwc.Write(body)
	}
}

// sendable ends the head of an answer that begins with body, and sees to it that it can be
// sent.
func (w *response) sendable(body []byte) {
	c := w.conn
	if !w.last && !c.body.whole.Load() { // else a client that only sends never reads its answer
		_, _ = io.CopyN(io.Discard, &c.body, maxDiscarded)
	}
	w.last = w.last || !c.body.whole.Load() || c.state.Load() == stopped
	now := time.Now()
	w.endHead(body, now)
	w.extendDeadline(now)
}

// extendDeadline gives what is sent now its time.
func (w *response) extendDeadline(now time.Time) {
	c := w.conn
	if timeout := c.server.WriteTimeout; timeout > 0 && c.writeBy.Sub(now) < timeout {
		c.writeBy = now.Add(2 * timeout)
		_ = c.rwc.SetWriteDeadline(c.writeBy)
	}
}

func isClose(value string) bool { return strings.EqualFold(value, "close") }

// appendHead begins the head with the status and the header, in the order of its names.
func (w *response) appendHead() {
	w.head = append(w.head, "HTTP/1.1 "...)
	w.head = strconv.AppendInt(w.head, int64(w.status), 10)
	w.head = append(w.head, ' ')
	if name := http.StatusText(w.status); name != "" {
		w.head = append(w.head, name...)
	} else {
		w.head = append(w.head, "status code "+strconv.Itoa(w.status)...)
	}
	w.head = append(w.head, "\r\n"...)
	w.names = w.names[:0]
	for name := range w.header {
		w.names = append(w.names, name)
	}
	slices.Sort(w.names)
	for _, name := range w.names {
		switch name {
		case "Connection", "Content-Length", "Date", "Transfer-Encoding": // endHead's matter
			continue
		}
		for _, value := range w.header[name] {
			w.appendField(name, value)
		}
	}
}

// endHead adds what depends on the body and on the connection.
func (w *response) endHead(body []byte, now time.Time) {
	if !w.typed && len(body) > 0 {
		w.appendField("Content-Type", http.DetectContentType(body))
	}
	switch {
	case w.flows:
		w.appendField("Transfer-Encoding", "chunked")
	case hasBody(w.status):
		w.head = append(w.head, "Content-Length: "...)
		w.head = strconv.AppendInt(w.head, int64(len(body)), 10)
		w.head = append(w.head, "\r\n"...)
	}
	if w.last {
		w.appendField("Connection", "close")
	}
	w.appendField("Date", date(now))
	w.head = append(w.head, "\r\n"...)
}

// appendField appends a line of the head. The end of a line within value, which would
// begin another, becomes a blank.
func (w *response) appendField(name, value string) {
	w.head = append(w.head, name...)
	w.head = append(w.head, ": "...)
	at := len(w.head)
	w.head = append(w.head, value...)
	for i, c := range w.head[at:] {
		if c == '\r' || c == '\n' {
			w.head[at+i] = ' '
		}
	}
	w.head = append(w.head, "\r\n"...)
}

// linger closes the sending side, and waits a little for the client to do likewise: what
// it still sends would have the answer thrown away.
func (w *response) linger() {
	c := w.conn
	_ = closeWrite(c.rwc)
	c.setReadBy(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.rwc, maxDiscarded)
}

// today is the last date that was needed.
var today atomic.Pointer[dated]

type dated struct {
	second int64
	text   string
}

// date returns now as HTTP has it.
func date(now time.Time) string {
	second := now.Unix()
	if d := today.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dated{second, now.UTC().Format(http.TimeFormat)}
	today.Store(d)
	return d.text
}
