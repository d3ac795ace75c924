package http1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
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
	stopped // it is closed, or closes after its answer
)

// conn is a connection that http1 serves.
type conn struct {
	server   *Server
	listener net.Listener // that accepted it
	rwc      net.Conn
	in       *bufio.Reader // of rwc
	state    atomic.Int32

	template *http.Request // the parts that are the same in all requests
	context  context.Context

	head     head
	body     body
	response response

	readBy, writeBy time.Time // deadlines that are set
}

func (s *Server) newConn(rwc net.Conn, listener net.Listener) *conn {
	c := &conn{server: s, listener: listener, rwc: rwc, in: bufio.NewReaderSize(rwc, bufferLen)}
	c.body.conn, c.response.conn = c, c
	c.head.header, c.response.header = make(http.Header), make(http.Header)
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

// serve answers requests until the connection ends or is handed to net/http.
func (c *conn) serve() {
	if !c.server.enter(c) {
		_ = c.rwc.Close()
		c.changed(http.StateClosed)
		return
	}
	handOver := false
	defer func() { c.end(handOver, recover()) }()
	c.changed(http.StateNew)
	for first := true; c.await(first) && c.state.CompareAndSwap(waiting, busy); first = false {
		came, _ := c.in.Peek(c.in.Buffered())
		n, plain := c.head.parse(came)
		if !plain {
			handOver = true
			return
		}
		c.changed(http.StateActive)
		_, _ = c.in.Discard(n)
		if !c.answer() || !c.state.CompareAndSwap(busy, waiting) {
			return
		}
		c.changed(http.StateIdle)
	}
}

// leastBytes is the number of bytes of a further request for which net/http waits. Line ends among them, which old browsers
// sent after a body, are ignored.
const leastBytes = 4

// await waits until the next request begins.
func (c *conn) await(first bool) bool {
	timeout, least := c.server.IdleTimeout, leastBytes
	if first {
		timeout, least = c.server.ReadHeaderTimeout, 1
	}
	if c.in.Buffered() < least {
		c.readWithin(cmp.Or(timeout, c.server.ReadTimeout))
	}
	came, err := c.in.Peek(least)
	if !first {
		_, _ = c.in.Discard(len(came) - len(bytes.TrimLeft(came, "\r\n")))
	}
	return err == nil
}

// answer answers the request by the handler, and reports whether another one may follow.
func (c *conn) answer() bool {
	h := &c.head
	ctx := &requestContext{Context: c.context, conn: c}
	defer ctx.end()
	r := c.template.WithContext(ctx)
	r.URL, r.RequestURI, r.Host, r.Header, r.ContentLength = h.url, h.target, h.host, h.header, h.length
	c.body.begin(h.length)
	c.response.begin()
	c.server.Handler.ServeHTTP(&c.response, r)
	return c.response.end()
}

// end closes the connection, or hands it to net/http.
func (c *conn) end(handOver bool, cause any) {
	c.server.leave(c)
	if handOver {
		c.setReadBy(time.Time{}) // net/http sets a deadline only if it has a timeout
		unread, _ := c.in.Peek(c.in.Buffered())
		c.server.hand(&begun{Conn: c.rwc, in: io.MultiReader(bytes.NewReader(unread), c.rwc)}, c.listener)
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

// stop reports whether the connection waits for a request, and so may be closed. Otherwise it ends after its answer.
func (c *conn) stop() bool { return c.state.Swap(stopped) == waiting }

// deadlineSlack is the divisor of a timeout by which waiting may end early, so that few requests set a deadline.
const deadlineSlack = 8

// readWithin sets the timeout of reads, 0 for none. It leaves a deadline that is about as late.
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
		_ = c.rwc.SetReadDeadline(by) // it fails if the connection is closed, as reads do
	}
}
