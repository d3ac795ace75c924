package http1

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// watchAfter is how long a handler waits for something before its client is watched for
// leaving: most are done by then, and pay nothing for it.
const watchAfter = 100 * time.Millisecond

// requestContext is the context of a request. It is cancelled when the request has been
// answered, or when its client is gone: for that, the connection is watched from
// watchAfter after somebody asked for Done on, if the body was read by then.
type requestContext struct {
	context.Context // the connection's
	conn            *conn

	asked atomic.Pointer[asked] // nil: nobody asked for Done
	ended atomic.Bool

	mu    sync.Mutex
	watch *watch // nil: none was begun
}

// asked is a context that somebody may wait for.
type asked struct {
	context.Context
	cancel context.CancelFunc
}

// Done is closed when the context is cancelled.
func (c *requestContext) Done() <-chan struct{} {
	if a := c.asked.Load(); a != nil {
		return a.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.asked.Load()
	if a == nil {
		a = new(asked)
		a.Context, a.cancel = context.WithCancel(c.Context)
		c.asked.Store(a)
		switch {
		case c.ended.Load():
			a.cancel()
		case c.conn.body.whole.Load():
			c.watch = watchFor(c.conn.rwc, a.cancel)
		}
	}
	return a.Done()
}

// Err is nil until the context is cancelled.
func (c *requestContext) Err() error {
	if a := c.asked.Load(); a != nil {
		return a.Err()
	}
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// Value returns what the connection has under key.
func (c *requestContext) Value(key any) any {
	if a := c.asked.Load(); a != nil {
		return a.Value(key) // which tells package context that Done is its own: it starts no goroutine to wait for it
	}
	return c.Context.Value(key)
}

// end cancels the context. It returns the watch, which is to be ended; nil if there is none.
func (c *requestContext) end() *watch {
	c.ended.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.asked.Load(); a != nil {
		a.cancel()
	}
	return c.watch
}

// watch reads a connection's next byte, to learn of its end.
type watch struct {
	conn  net.Conn
	gone  context.CancelFunc
	timer *time.Timer
	next  [1]byte
	read  int
	ended chan struct{} // closed when nothing is read any more
}

func watchFor(conn net.Conn, gone context.CancelFunc) *watch {
	w := &watch{conn: conn, gone: gone, ended: make(chan struct{})}
	w.timer = time.AfterFunc(watchAfter, w.run)
	return w
}

func (w *watch) run() {
	defer close(w.ended)
	n, err := w.conn.Read(w.next[:])
	w.read = n
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.gone()
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// end returns what was read, and whether that took moving the connection's deadline.
func (w *watch) end() (read []byte, moved bool) {
	if w.timer.Stop() {
		return nil, false
	}
	_ = w.conn.SetReadDeadline(longAgo) // wakes it
	<-w.ended
	return w.next[:w.read], true
}
