package http1

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// States of a connection.
const (
	waiting int32 = iota // for a request
	busy
	stopped // it is closed
)

// conn is a connection that http1 serves.
type conn struct {
	server *Server
	handed *handed
	rwc    net.Conn
	state  atomic.Int32

	template *http.Request // what all requests of the connection share
	context  context.Context

	buffer []byte // what came; of it, unread is not yet used
	unread []byte

	head     head
	body     body
	response response

	readBy, writeBy time.Time // deadlines that are set
}

func (s *Server) newConn(rwc net.Conn, handed *handed) *conn {
	c := &conn{server: s, handed: handed, rwc: rwc, buffer: make([]byte, bufferLen)}
	c.body.conn, c.response.conn = c, c
	c.context = context.WithValue(context.Background(), http.ServerContextKey, s.Server)
	c.context = context.WithValue(c.context, http.LocalAddrContextKey, rwc.LocalAddr())
	if s.ConnContext != nil {
		c.context = s.ConnContext(c.context, rwc)
	}
	c.template = &http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: &c.body, RemoteAddr: rwc.RemoteAddr().String(),
	}
	return c
}

// serve answers requests until the connection ends or is net/http's.
func (c *conn) serve() {
	if !c.server.enter(c) {
		_ = c.rwc.Close()
		c.changed(http.StateClosed)
		return
	}
	handOver := false
	defer func() { c.end(handOver, recover()) }()
	c.changed(http.StateNew)
	for first := true; c.await(first); first = false {
		if !first && !c.skipLines() {
			return
		}
		if !c.state.CompareAndSwap(waiting, busy) {
			return
		}
		n, plain := c.head.parse(c.unread)
		if !plain {
			handOver = true
			return
		}
		c.changed(http.StateActive)
		c.unread = c.unread[n:]
		if !c.answer() || !c.state.CompareAndSwap(busy, waiting) {
			return
		}
		c.changed(http.StateIdle)
	}
}

// skippedLines is how many bytes of empty lines may be sent after a request's body, as old
// browsers did: as many as net/http takes for nothing.
const skippedLines = 4

// skipLines drops empty lines before a request, and reports whether there is anything after
// them, for which it waits no longer than await does.
func (c *conn) skipLines() bool {
	for n := 0; n < skippedLines && len(c.unread) > 0 && (c.unread[0] == '\r' || c.unread[0] == '\n'); n++ {
		if c.unread = c.unread[1:]; len(c.unread) == 0 && !c.fill() {
			return false
		}
	}
	return true
}

// end closes the connection, or hands it to net/http.
func (c *conn) end(handOver bool, cause any) {
	c.server.leave(c)
	if handOver {
		c.setReadBy(time.Time{}) // net/http sets its own only if it has one
		c.handed.take(&begun{Conn: c.rwc, unread: c.unread})
		return
	}
	if err, _ := cause.(error); cause != nil && !errors.Is(err, http.ErrAbortHandler) {
		c.logf("http: panic serving a client: %v\n%s", cause, debug.Stack())
	}
	_ = c.rwc.Close()
	c.changed(http.StateClosed)
}

func (c *conn) logf(format string, args ...any) {
	if c.server.ErrorLog != nil {
		c.server.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

func (c *conn) changed(state http.ConnState) {
	if c.server.ConnState != nil {
		c.server.ConnState(c.rwc, state)
	}
}

// stop reports whether the connection waited for a request, and so may be closed. If not,
// it ends after its answer.
func (c *conn) stop() bool { return c.state.Swap(stopped) == waiting }

// await waits until something of the next request has come. One byte is none: a watch has
// read it.
func (c *conn) await(first bool) bool {
	if len(c.unread) > 1 {
		return true
	}
	timeout := c.server.IdleTimeout
	if first {
		timeout = c.server.ReadHeaderTimeout
	}
	c.readWithin(cmp.Or(timeout, c.server.ReadTimeout))
	return c.fill()
}

// fill reads what comes next, after what is unread.
func (c *conn) fill() bool {
	have := copy(c.buffer, c.unread)
	n, err := c.rwc.Read(c.buffer[have:])
	c.unread = c.buffer[:have+n]
	return n > 0 || err == nil
}

// deadlineSlack is the part of a timeout by which waiting may end early, so that few
// requests have to set a deadline.
const deadlineSlack = 8

// readWithin lets reads wait for about as long as timeout; 0: for ever.
func (c *conn) readWithin(timeout time.Duration) {
	if timeout <= 0 {
		c.setReadBy(time.Time{})
		return
	}
	by := time.Now().Add(timeout)
	if early := by.Sub(c.readBy); early < 0 || early > timeout/deadlineSlack {
		c.setReadBy(by)
	}
}

func (c *conn) setReadBy(by time.Time) {
	if !by.Equal(c.readBy) {
		c.readBy = by
		_ = c.rwc.SetReadDeadline(by) // it fails on connections that are closed, as their reads do
	}
}

// answer has the handler answer the request, and reports whether another may follow.
func (c *conn) answer() bool {
	h := &c.head
	ctx := &requestContext{Context: c.context, conn: c}
	r := c.template.WithContext(ctx)
	r.URL, r.RequestURI, r.Host, r.Header, r.ContentLength = h.url, h.target, h.host, h.header, h.length
	c.body.begin(h.length)
	c.response.begin()
	defer c.unwatch(ctx)
	c.server.Handler.ServeHTTP(&c.response, r)
	return c.response.end()
}

// unwatch ends ctx. What it has read is the beginning of the next request.
func (c *conn) unwatch(ctx *requestContext) {
	w := ctx.end()
	if w == nil {
		return
	}
	read, moved := w.end()
	c.unread = append(c.unread, read...)
	if moved {
		c.readBy = longAgo
		c.setReadBy(time.Time{})
	}
}
