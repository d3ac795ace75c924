package connections

import (
	"context"
	"net/http"
	"time"
)

// DrainTime is how long Drain leaves connections open that wait for a request. A client that
// sends more than one request a second learns in this time that its connection ends.
const DrainTime = time.Second

// Drain closes the listener, and then lets clients leave without a lost request: for DrainTime,
// every answer says that it is the last one of its connection. A client that sends its next
// request meanwhile is answered; it would otherwise send it into a connection that is just
// being closed. Drain returns earlier once no connection is open, or when ctx ends. The server
// is to be shut down afterwards: it closes what still waits.
//
// Connections that were never used are closed in the end: the server would wait for their
// first request.
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

// beginDrain closes the listener before any answer can say that it is the last one: a client
// that hears so connects anew at once.
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

// unused returns the connections that never had a request.
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

// endingAnswers has each answer of next say that it is the last one of its connection, once
// Drain has begun.
func (c *Listener) endingAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.last.Load() && r.Header["Upgrade"] == nil { // an upgraded connection is no longer HTTP's
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
}
