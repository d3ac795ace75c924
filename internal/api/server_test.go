package api

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRoutesOfOneConnection holds that requests of a connection are routed independently: one after the other by
// HTTP/1, and at the same time by HTTP/2 (run it with -race).
func TestRoutesOfOneConnection(t *testing.T) {
	requests := []struct{ method, path, want string }{
		{"POST", "/v1/take", "/v1/take 200"},
		{"GET", "/v1/policies/api", "/v1/policies/{name} 200"},
		{"GET", "/v1/policies/other", "/v1/policies/{name} 404"},
		{"GET", "/nothing", "unknown 404"},
		{"GET", "/v1/take", "unknown 405"},
		{"HEAD", "/healthz", "/healthz 200"},
		{"POST", "/v1/take", "/v1/take 200"},
		{"GET", "/healthz", "/healthz 200"},
	}
	want := make([]string, len(requests))
	for i, r := range requests {
		want[i] = r.want
	}
	for _, http2 := range []bool{false, true} {
		t.Run("http2="+strconv.FormatBool(http2), func(t *testing.T) {
			byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
				s, want := newConversation(t, by, http2), slices.Clone(want)
				var all sync.WaitGroup
				for _, r := range requests {
					if http2 {
						all.Go(func() { s.say(r.method, r.path) })
					} else {
						s.say(r.method, r.path)
					}
				}
				all.Wait()
				got := s.routes()
				if http2 {
					slices.Sort(got)
					slices.Sort(want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			})
		})
	}
}

// conversation is a client with one connection to its own server.
type conversation struct {
	t      *testing.T
	client *http.Client
	url    string

	mu       sync.Mutex
	observed []string
}

func newConversation(t *testing.T, by func(*http.Server) webServer, http2 bool) *conversation {
	t.Helper()
	c := &conversation{t: t}
	f := newFront(t, &Options{Observe: func(route string, status int, _ time.Duration, _ string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.observed = append(c.observed, route+" "+strconv.Itoa(status))
	}}, tail)
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server := NewHTTPServer(f.server)
	server.Protocols = &protocols
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := by(server)
	var served sync.WaitGroup
	served.Go(func() { _ = web.Serve(listener) })
	t.Cleanup(func() { _ = web.Close(); served.Wait() })
	c.client = &http.Client{Transport: &http.Transport{Protocols: &protocols, MaxConnsPerHost: 1}}
	c.url = "http://" + listener.Addr().String()
	return c
}

func (c *conversation) say(method, path string) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(oneTail))
	if err != nil {
		c.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(r)
	if err != nil {
		c.t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// routes returns the observations after as many requests as were sent have ended.
func (c *conversation) routes() []string {
	c.client.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.observed)
}
