package http1_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// TestTimeouts holds that connections of slow clients are closed.
func TestTimeouts(t *testing.T) {
	timeouts := func(s *http.Server) {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 5*time.Second, 10*time.Second, 20*time.Second, 2*time.Minute
	}
	for name, test := range map[string]struct {
		do       func(c *client)
		min, max time.Duration
	}{
		"no request": {func(*client) {}, 5 * time.Second, 5 * time.Second},
		"no other request": {func(c *client) {
			c.say(post("a"))
			c.wantAnswer("a")
		}, 2*time.Minute - 2*time.Minute/8, 2 * time.Minute},
		"no other request, after many": {func(c *client) {
			for range 20 {
				c.say(post("a"))
				c.wantAnswer("a")
				time.Sleep(10 * time.Second)
			}
		}, 2*time.Minute - 2*time.Minute/8 - 10*time.Second, 2 * time.Minute},
		"half a body": {func(c *client) {
			c.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello")
			time.Sleep(10*time.Second - 1)
			if res, _ := c.hear(); res.StatusCode != http.StatusBadRequest || !res.Close {
				c.t.Errorf("%v", res)
			}
		}, 0, time.Second},
		"half a body, in time": {func(c *client) {
			c.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello")
			time.Sleep(10*time.Second - 1)
			c.say("world")
			c.wantAnswer("helloworld")
		}, 2*time.Minute - 2*time.Minute/8, 2 * time.Minute},
		"a body that trickles": {func(c *client) {
			c.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello")
			time.Sleep(6 * time.Second)
			c.say("w")
			start := time.Now()
			if res, _ := c.hear(); res.StatusCode != http.StatusBadRequest || time.Since(start) != 4*time.Second {
				c.t.Errorf("%v after %v", res, time.Since(start))
			}
		}, 0, time.Second},
		"an answer not read": {func(c *client) {
			c.say(post("a"))
			time.Sleep(40*time.Second + 1)
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			byBoth(t, func(t *testing.T, by func(*http.Server) server) {
				c := newFront(t, by, echo, timeouts).dial()
				test.do(c)
				if took := c.wantEnd(); took < test.min || took > test.max {
					t.Errorf("closed after %v, want %v to %v", took, test.min, test.max)
				}
			})
		})
	}
}

// TestShortIdleTimeout holds that the IdleTimeout applies after a body that had more time.
func TestShortIdleTimeout(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		c := newFront(t, by, echo, func(s *http.Server) { s.ReadTimeout, s.IdleTimeout = time.Minute, time.Second }).dial()
		c.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello")
		time.Sleep(time.Second)
		c.say("world")
		c.wantAnswer("helloworld")
		if took := c.wantEnd(); took > time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestReadTimeout holds that the ReadTimeout is used for timeouts that are not given.
func TestReadTimeout(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, echo, func(s *http.Server) { s.ReadTimeout = time.Minute })
		fresh, used := f.dial(), f.dial()
		used.say(post("a"))
		used.wantAnswer("a")
		if took := fresh.wantEnd() + used.wantEnd(); took > time.Minute {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestNoDeadlineIsHandedOver holds that net/http gets a connection without a deadline.
func TestNoDeadlineIsHandedOver(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				time.Sleep(time.Hour)
			}
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
		}, func(s *http.Server) { s.IdleTimeout = time.Minute })
		c := f.dial()
		c.say(post(""))
		c.wantAnswer("")
		c.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
		c.wantAnswer("")
	})
}

// TestDisconnect holds that the context of a request is cancelled if the client leaves while the handler waits.
func TestDisconnect(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		ended := make(chan error)
		f := newFront(t, by, func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			defer cancel()
			<-ctx.Done()
			ended <- ctx.Err()
		})
		c := f.dial()
		go c.say(post(""))
		time.Sleep(time.Second)
		start := time.Now()
		_ = c.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestSlowHandlers holds that the bytes that a client sends while its handler waits for a minute are not lost.
func TestSlowHandlers(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		_, own := by(new(http.Server)).(*http1.Server)
		var contexts []context.Context
		f := newFront(t, by, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			contexts = append(contexts, r.Context())
			if _, handed := w.(http.Hijacker); handed && own {
				t.Errorf("%s of %q is handed over", r.Method, body)
			}
			select {
			case <-r.Context().Done():
				t.Error("cancelled")
			case <-time.After(time.Minute):
			}
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body)
		}, func(s *http.Server) { s.ReadHeaderTimeout, s.IdleTimeout = time.Second, time.Hour })
		c := f.dial()
		go c.say(post("a") + post("b"))
		c.wantAnswer("a")
		c.wantAnswer("b")
		go func() {
			c.say(post("c"))
			time.Sleep(30 * time.Second)
			c.say(post("d"))
		}()
		c.wantAnswer("c")
		c.wantAnswer("d")
		time.Sleep(time.Minute)
		c.say(post("e"))
		c.wantAnswer("e")
		synctest.Wait()
		for _, ctx := range contexts {
			select {
			case <-ctx.Done():
			default:
				t.Error("not cancelled after the answer")
			}
		}
	})
}

// TestBodyAfterDone holds that the handler reads the body, and not the watch of the connection.
func TestBodyAfterDone(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, func(w http.ResponseWriter, r *http.Request) {
			_ = r.Context().Done()
			time.Sleep(time.Second)
			echo(w, r)
		})
		c := f.dial()
		c.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello")
		go c.say("world")
		c.wantAnswer("helloworld")
	})
}

// TestContextThatNobodyAsked holds that a context is cancelled after its request, even if Done was not called.
func TestContextThatNobodyAsked(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		type key struct{}
		var kept context.Context
		f := newFront(t, by, func(_ http.ResponseWriter, r *http.Request) {
			if kept = r.Context(); kept.Err() != nil || kept.Value(key{}) != "value" || kept.Value(http.ServerContextKey) == nil {
				t.Error(kept.Err(), kept.Value(key{}))
			}
		}, func(s *http.Server) {
			s.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "value") }
		})
		c := f.dial()
		c.say(post(""))
		c.wantAnswer("")
		synctest.Wait()
		if err := kept.Err(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-kept.Done()
		if kept.Value(key{}) != "value" {
			t.Error("its values are gone")
		}
	})
}
