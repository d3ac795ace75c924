package api

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// drain calls Drain, and returns a channel that is closed when it has returned.
func (b *besieged) drain() <-chan struct{} {
	drained := make(chan struct{})
	go func() {
		b.connections.Drain(context.Background())
		close(drained)
	}()
	waitUntil(b.t, "answers are the last ones", b.connections.last.Load)
	return drained
}

// TestDrain lets clients leave: each answer is its connection's last, whatever the request, and
// the server then waits for nobody who never sent one.
func TestDrain(t *testing.T) {
	byBoth(t, func(t *testing.T, netHTTP bool) {
		b := besiegeWith(t, 10, &Options{}, nil, netHTTP)
		takes, asks, waits, unused := b.dial(), b.dial(), b.dial(), b.dial()
		for _, c := range []*client{takes, asks, waits} {
			if got, last := c.send(takeFor("a")).statusOf(); got != http.StatusOK || last {
				t.Errorf("before: %d, the last one: %v", got, last)
			}
		}
		waitUntil(t, "four are open", func() bool { return b.connections.Len() == 4 })
		began := time.Now()
		drained := b.drain()
		for c, request := range map[*client]string{takes: takeFor("a"), asks: "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"} {
			if got, last := c.send(request).statusOf(); got != http.StatusOK || !last {
				t.Errorf("meanwhile: %d, the last one: %v", got, last)
			}
			c.closed()
		}
		<-drained
		unused.closed()
		if err := b.web.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		waits.closed()
		if took := time.Since(began); took < DrainTime {
			t.Errorf("clients that wait had %v", took)
		}
	})
}

// TestDrainEndsWithTheLastConnection waits for nobody when none is there, or none is left.
func TestDrainEndsWithTheLastConnection(t *testing.T) {
	byBoth(t, func(t *testing.T, netHTTP bool) {
		for _, open := range []int{0, 3} {
			b := besiegeWith(t, 10, &Options{}, nil, netHTTP)
			var clients []*client
			for range open {
				c := b.dial().send(takeFor("a"))
				c.status()
				clients = append(clients, c)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			drained := b.drain()
			for _, c := range clients {
				_ = c.Close()
			}
			<-drained
			select {
			case <-b.connections.drained:
			default:
				t.Errorf("%d were open: it waited until the time was over", open)
			}
			if err := b.web.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}
	})
}
