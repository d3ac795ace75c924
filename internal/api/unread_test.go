package api

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// TestABodyThatNeverComes holds that an answer that does not need the body does not wait for it, and that its
// connection is closed.
func TestABodyThatNeverComes(t *testing.T) {
	const least = 10 * time.Second // of the timeout for bodies, which nothing here is to wait for
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	large := "POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n"
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		opts := &Options{Keyring: keyring(t, "decider scopes: [decide, metrics]"), Metrics: metrics}
		b := besiegeWith(t, 100, opts, by, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = 2*least, 4*least })
		var all sync.WaitGroup
		for name, test := range map[string]struct {
			head   string
			token  string
			status int
		}{
			"a stranger's":          {headersOf("/v1/take", 50), "", 401},
			"a stranger's, begun":   {headersOf("/v1/take", 50) + `{"policy":`, "", 401},
			"a stranger's, large":   {headersOf("/v1/batch", 900_000), "", 401},
			"a stranger's, chunked": {"POST /v1/take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "", 401},
			"a stranger's, asked":   {"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", "", 401},
			"without its scope":     {"POST /v1/reset HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n", "decider", 403},
			"no JSON":               {"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n", "decider", 415},
			"too large":             {large + "Content-Type: application/json\r\n", "decider", 413},
			"too large, begun":      {large + "Content-Type: application/json\r\n", "decider", 413},
			"of no route":           {headersOf("/nowhere", 9), "", 404},
			"of no method":          {headersOf("/healthz", 9), "", 405},
			"of a GET":              {"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", "", 200},
			"of metrics":            {"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n", "decider", 200},
		} {
			if test.token != "" {
				test.head += "Authorization: Bearer " + test.token + "\r\n\r\n"
			}
			if strings.HasSuffix(name, "large, begun") {
				test.head += strings.Repeat(" ", 100_000)
			}
			all.Go(func() {
				began := time.Now()
				c := b.dial().send(test.head)
				if got, last := c.statusOf(); got != test.status || !last {
					t.Errorf("%s: %d, the last one: %v; want %d", name, got, last, test.status)
				}
				c.closed()
				if took := time.Since(began); took > least/2 {
					t.Errorf("%s: it took %v", name, took)
				}
			})
		}
		all.Wait()
		waitUntil(t, "none is open", func() bool { return b.connections.Len() == 0 })
	})
}

// TestABodyThatComesLate holds that the connection stays open if an unread body arrives late, in one piece or more.
func TestABodyThatComesLate(t *testing.T) {
	body := strings.Repeat(" ", 200_000)
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiegeWith(t, 100, &Options{Keyring: keyring(t, "decider scopes: [decide]")}, by, nil)
		for _, pieces := range [][]string{
			{headersOf("/v1/take", 50) + body[:50]},
			{headersOf("/v1/take", 50), body[:20], body[:30]},
			{headersOf("/v1/batch", len(body)) + body},
			{"POST /v1/take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "0\r\n\r\n"},
		} {
			waitUntil(t, "its connection is kept", func() bool { // pieces may come too late on a busy machine
				c := b.dial()
				for range 3 {
					for _, piece := range pieces {
						c.send(piece)
					}
					if got, last := c.statusOf(); got != http.StatusUnauthorized || last {
						return false
					}
				}
				return true
			})
		}
	})
}

// TestBodiesThatNeverComeMakeRoom holds that connections with bodies that do not arrive are closed for honest clients
// at once.
func TestBodiesThatNeverComeMakeRoom(t *testing.T) {
	const most = 50
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiegeWith(t, most, &Options{Keyring: keyring(t, "decider scopes: [decide]")}, by, nil)
		honest := strings.Replace(takeFor("honest"), "Host: a\r\n", "Host: a\r\nAuthorization: Bearer decider\r\n", 1)
		for range 3 {
			var abusers []*client
			for range most {
				abusers = append(abusers, b.dial())
			}
			waitUntil(t, "all are open", func() bool { return b.connections.Len() == most })
			for _, c := range abusers {
				c.send(headersOf("/v1/take", 50))
			}
			for _, c := range abusers {
				c.statusOf()
			}
			c := b.dial()
			if got := c.send(honest).status(); got != http.StatusOK {
				t.Errorf("an honest client is answered %d", got)
			}
			_ = c.Close()
		}
		if n := b.reached[connections.Full].Load(); n != 0 {
			t.Errorf("%d connections were refused", n)
		}
	})
}
