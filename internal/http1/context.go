package http1

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// watchAfter is the time after which the connection of a handler that waits is watched. Most handlers have returned by then,
// and cost nothing.
const watchAfter = 100 * time.Millisecond

// requestContext is the context of a request. It is cancelled when the request was answered, or when its client is gone.
// To learn that, the connection is watched from watchAfter after the first call of Done, if the body was read before
// that call.
type requestContext struct {
	context.Context // of the connection
	conn            *conn

	mu      sync.Mutex
	ended   bool
	asked   context.Context // nil: Done was not called
	cancel  context.CancelFunc
	timer   *time.Timer   // begins the watch; nil: there is none
	watched chan struct{} // closed when the watch has ended
}

// Done is closed when the context is cancelled.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked, c.cancel = context.WithCancel(c.Context)
		switch {
		case c.ended:
			c.cancel()
		case c.conn.body.whole.Load():
			c.watched = make(chan struct{})
			c.timer = time.AfterFunc(watchAfter, c.watch)
		}
	}
	return c.asked.Done()
}

// Err is nil until the context is cancelled.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.asked != nil:
		return c.asked.Err()
	case c.ended:
		return context.Canceled
	}
	return nil
}

// Value returns the connection's value for key. After Done was called, asked answers, by which package context recognizes
// its own channel and starts no goroutine to wait for it.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked != nil {
		return c.asked.Value(key)
	}
	return c.Context.Value(key)
}

// watch cancels the context if the connection ends. Bytes of the next request stay unread.
func (c *requestContext) watch() {
	defer close(c.watched)
	in := c.conn.in
	_, err := in.Peek(min(in.Buffered()+1, in.Size()))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// end cancels the context, and waits for the end of the watch.
func (c *requestContext) end() {
	c.mu.Lock()
	c.ended = true
	if c.asked != nil {
		c.cancel()
	}
	timer := c.timer
	c.mu.Unlock()
	if timer != nil && !timer.Stop() {
		c.conn.setReadBy(longAgo) // wakes the watch
		<-c.watched
		c.conn.setReadBy(time.Time{})
	}
}
