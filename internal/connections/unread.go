package connections

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Bounds of a body that its handler has not read.
const (
	maxDiscarded = 8 << 20                // bytes that are read nevertheless
	discardStep  = 16 << 10               // of them
	stepTime     = 100 * time.Millisecond // time for each step
	discardTime  = time.Second            // all steps together
	lingerTime   = 500 * time.Millisecond // for a client that still sends, to read its answer
)

// Unread must be called before w answers r, if the body of r was not read to its end. It reads the rest, because some
// clients read their answer only after they have sent everything. If the rest does not arrive in time, the answer does
// not wait for it, and is its connection's last. Meanwhile the connection may be closed for a new one. For HTTP/2, it
// does nothing.
func Unread(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.ProtoMajor != 1 || r.ContentLength == 0 || control.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	conn, _ := r.Context().Value(connectionKey{}).(*connection)
	conn.setWaiting(true)
	if r.Header["Expect"] == nil && swallow(control, r.Body) { // otherwise the client sends it only if it is read
		conn.setWaiting(false)
		return
	}
	w.Header()["Connection"] = []string{"close"}
	_ = control.SetReadDeadline(time.Now().Add(lingerTime)) // the server reads on after the answer
}

// swallow reads the rest of body, and reports whether that was all of it.
func swallow(control *http.ResponseController, body io.Reader) (all bool) {
	now := time.Now()
	end := now.Add(discardTime)
	for left := maxDiscarded; left > 0 && now.Before(end); left -= discardStep {
		by := now.Add(stepTime)
		if by.After(end) {
			by = end
		}
		_ = control.SetReadDeadline(by)
		if _, err := io.CopyN(io.Discard, body, discardStep); err != nil {
			return errors.Is(err, io.EOF)
		}
		now = time.Now()
	}
	return false
}

// connectionKey is the key of a request's *connection.
type connectionKey struct{}

// withConnection adds the connection to the context of each request, after next, which may be nil.
func withConnection(next func(context.Context, net.Conn) context.Context) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, conn net.Conn) context.Context {
		if next != nil {
			ctx = next(ctx, conn)
		}
		if below, ok := below(conn); ok {
			ctx = context.WithValue(ctx, connectionKey{}, below)
		}
		return ctx
	}
}

// setWaiting lets c be closed for a new connection as if it were idle, or ends that. c may be nil.
func (c *connection) setWaiting(waits bool) {
	if c == nil {
		return
	}
	c.of.places.Lock()
	defer c.of.places.Unlock()
	if waits {
		c.of.places.Wait(&c.place)
	} else {
		c.of.places.Busy(&c.place)
	}
}
