package connections

import (
	"context"
	"net/http"
	"time"
)

// DrainTime is how long Drain leaves idle connections open. Within it, a client that sends more than one request a
// second learns that its connection ends.
const DrainTime = time.Second

// Drain closes the listener, and then lets clients leave without a lost request: for DrainTime, every answer says that
// it is the last one of its connection, and further requests are still answered. Otherwise clients could send them into
// connections that are just being closed. Drain returns earlier if no connection is open, or when ctx ends. Shut the
// server down afterwards, to close the remaining idle connections.
//
// Drain closes unused connections at its end, because the server would wait for their first request.
func (c *Listener) Drain(ctx context.Context) {
	drained := c.beginDrain()
	moment, cancel := context.WithTimeout(ctx, DrainTime)
	defer cancel()
	select {
	case <-drained:
	case <-moment.Done():
	}
	for _, conn := range c.unused() {
		_ = conn.Close() // its server finds out
	}
}

// beginDrain closes the listener before any answer can be the last one of its connection, because clients then
// reconnect at once.
func (c *Listener) beginDrain() (drained <-chan struct{}) {
	c.places.Lock()
	defer c.places.Unlock()
	if c.drained == nil {
		c.drained = make(chan struct{})
		_ = c.shut() // Close returns the error
		c.last.Store(true)
	}
	return c.drained
}

// desert waits until Close, if the listener was closed by Drain.
func (c *Listener) desert() {
	c.places.Lock()
	draining := c.drained != nil
	if draining {
		c.deserted = true
		c.checkDrained()
	}
	c.places.Unlock()
	if draining {
		<-c.ended
	}
}

// checkDrained is called under the lock.
func (c *Listener) checkDrained() {
	if !c.deserted || c.places.Taken() > 0 {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}

// unused returns the connections that have not had a request.
func (c *Listener) unused() (all []*connection) {
	c.places.Lock()
	defer c.places.Unlock()
	for waiting := range c.places.AllWaiting() {
		if conn := waiting.(*connection); !conn.used {
			all = append(all, conn)
		}
	}
	return all
}

// Close closes the listener, and ends Accept.
func (c *Listener) Close() error {
	c.closing.Do(func() { close(c.ended) })
	return c.shut()
}

// endingAnswers makes each answer of next the last one of its connection, once Drain has begun.
func (c *Listener) endingAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.last.Load() && r.Header["Upgrade"] == nil { // an upgraded connection is no longer HTTP's
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
}
