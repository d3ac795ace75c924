package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/memory"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// patience is the deadline of events that take milliseconds on an idle machine.
const patience = time.Minute

// waitUntil waits until a condition holds.
func waitUntil(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !so(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// besieged is a front behind real sockets, with the bounds and timeouts of a test.
type besieged struct {
	*front
	web         webServer
	connections *connections.Listener
	accepted    atomic.Int64 // connections
	reached     map[connections.Bound]*atomic.Int64
}

// acceptances is a listener that counts accepted connections.
type acceptances struct {
	net.Listener
	n *atomic.Int64
}

func (a acceptances) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		a.n.Add(1)
	}
	return conn, err
}

// webServer has the methods that http1.Server and http.Server have in common.
type webServer interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// fast returns the server that answers plain requests without net/http.
func fast(s *http.Server) webServer { return &http1.Server{Server: s} }

// std returns the server of net/http.
func std(s *http.Server) webServer { return s }

// byBoth runs a test by each of the two servers.
func byBoth(t *testing.T, test func(t *testing.T, by func(*http.Server) webServer)) {
	t.Run("fast", func(t *testing.T) { test(t, fast) })
	t.Run("std", func(t *testing.T) { test(t, std) })
}

// besiege serves by fast or std.
func besiege(t *testing.T, most int, by func(*http.Server) webServer, change func(*http.Server)) *besieged {
	t.Helper()
	return besiegeWith(t, most, &Options{}, by, change)
}

// besiegeWith is besiege with options of the front.
func besiegeWith(t *testing.T, most int, opts *Options, by func(*http.Server) webServer, change func(*http.Server)) *besieged {
	t.Helper()
	b := &besieged{reached: make(map[connections.Bound]*atomic.Int64)}
	for _, bound := range Bounds {
		b.reached[bound] = new(atomic.Int64)
	}
	reached := func(bound connections.Bound) { b.reached[bound].Add(1) }
	opts.Reached = reached
	b.front = newFront(t, opts, tail)
	server := NewHTTPServer(b.server)
	if change != nil {
		change(server)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.connections = connections.Limit(server, acceptances{listener, &b.accepted}, most, reached)
	b.web = by(server)
	served := make(chan error, 1)
	go func() { served <- b.web.Serve(b.connections) }()
	t.Cleanup(func() {
		_ = b.web.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return b
}

// takeAll takes the remaining memory for bodies until the share is released.
func (s *Server) takeAll() *memory.Share {
	others := s.memory.Share()
	others.Charge(memory.FreeBody + int(s.memory.Left()))
	return &others
}

// client is a connection to which a test writes bytes.
type client struct {
	net.Conn
	t   *testing.T
	buf *bufio.Reader
}

func (b *besieged) dial() *client {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.connections.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &client{conn, b.t, bufio.NewReader(conn)}
}

func (c *client) send(text string) *client {
	_, _ = io.WriteString(c, text) // an error shows when the answer is read
	return c
}

// status returns the status of the next answer, 0 if there is none.
func (c *client) status() int {
	status, _ := c.statusOf()
	return status
}

// statusOf returns the status of the next answer, and whether it is the connection's last.
func (c *client) statusOf() (status int, last bool) {
	res, err := http.ReadResponse(c.buf, nil)
	if err != nil {
		return 0, false
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode, res.Close
}

// closed waits until the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c.buf)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Errorf("it is still open after %v", patience)
	}
}

func headersOf(path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length)
}

func takeFor(identifier string) string {
	body := `{"policy":"api","identifier":"` + identifier + `"}`
	return headersOf("/v1/take", len(body)) + body
}

// serves fails unless an honest caller is answered on a new connection.
func (b *besieged) serves(identifier string) {
	b.t.Helper()
	c := b.dial()
	defer c.Close()
	if got := c.send(takeFor(identifier)).status(); got != http.StatusOK {
		b.t.Errorf("%s is answered %d", identifier, got)
	}
}

// used returns the units counted for identifier.
func (b *besieged) used(identifier string) string {
	b.t.Helper()
	body := bodyOf(b.t, b.do(http.MethodPost, "/v1/check", `{"policy":"api","identifier":"`+identifier+`"}`))
	_, used, _ := strings.Cut(body, `"used":`)
	used, _, _ = strings.Cut(used, ",")
	return used
}

// TestIdleConnectionsMakeRoom holds that the connection that has waited longest is closed when there are too many,
// whether it was used, or stopped within its headers.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiege(t, 3, by, nil)
		slow := b.dial().send("POST /v1/take HTTP/1.1\r\nHost:")
		waitUntil(t, "one is open", func() bool { return b.connections.Len() == 1 })
		used := b.dial().send(takeFor("first"))
		if got := used.status(); got != http.StatusOK {
			t.Fatalf("%d", got)
		}
		waitUntil(t, "it waits again", func() bool { return b.connections.Waiting() == 2 })
		silent := b.dial()
		waitUntil(t, "three are open", func() bool { return b.connections.Len() == 3 })
		for _, c := range []*client{slow, used, silent} {
			fresh := b.dial().send(takeFor("second"))
			if got := fresh.status(); got != http.StatusOK {
				t.Errorf("a new connection is answered %d", got)
			}
			c.closed()
		}
		if n := b.connections.Len(); n != 3 || b.reached[connections.Idle].Load() != 3 || b.reached[connections.Full].Load() != 0 {
			t.Errorf("%d are open, %d were closed", n, b.reached[connections.Idle].Load())
		}
	})
}

// TestBusyConnectionsAreKept holds that a new connection is refused while every other one has a request in progress,
// and admitted later.
func TestBusyConnectionsAreKept(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiege(t, 2, by, nil)
		began, goOn := make(chan struct{}, 2), make(chan struct{})
		b.store.before = func() {
			began <- struct{}{}
			<-goOn
		}
		busy := []*client{b.dial().send(takeFor("a")), b.dial().send(takeFor("b"))}
		<-began // the other one waits for the same engine, or has begun too
		waitUntil(t, "both are busy", func() bool {
			return b.connections.Len() == 2 && b.connections.Waiting() == 0
		})
		refused := b.dial()
		res, err := http.ReadResponse(refused.buf, nil)
		if err != nil {
			t.Fatal(err)
		}
		var problem struct{ Status int }
		if err := json.NewDecoder(res.Body).Decode(&problem); err != nil || problem.Status != http.StatusServiceUnavailable ||
			res.StatusCode != problem.Status || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("one too many is answered %d, %v: %v, %v", res.StatusCode, res.Header, problem, err)
		}
		refused.closed()
		close(goOn)
		for _, c := range busy {
			if got := c.status(); got != http.StatusOK {
				t.Errorf("who was busy is answered %d", got)
			}
		}
		b.store.before = nil
		waitUntil(t, "both wait again", func() bool { return b.connections.Waiting() == 2 }) // soon after they are answered
		b.serves("c")
		if refused, closed := b.reached[connections.Full].Load(), b.reached[connections.Idle].Load(); refused != 1 || closed != 1 {
			t.Errorf("%d refused, %d closed", refused, closed)
		}
	})
}

// TestSlowClientsEnd holds that connections with endless headers or bodies end at their timeout, count nothing, and do
// not delay others.
func TestSlowClientsEnd(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		t.Parallel()
		const each = 50
		b := besiege(t, 1000, by, func(s *http.Server) {
			s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = time.Second, 2*time.Second, 2*time.Second
		})
		whole := takeFor("victim")
		batch := operationsOf(slices.Repeat([]string{oneOp}, 1000)...)
		var slow []*client
		for i := range each {
			slow = append(slow,
				b.dial().send(whole[:10+i]),                                              // headers
				b.dial().send(whole[:len(whole)-1-i%40]),                                 // a body
				b.dial().send(headersOf("/v1/batch", len(batch))+batch[:len(batch)-1-i]), // a large one
				b.dial(), // nothing
			)
		}
		// The first may have timed out before the last is accepted.
		waitUntil(t, "all are accepted", func() bool { return b.accepted.Load() == int64(len(slow)) })
		b.serves("honest")
		for _, c := range slow {
			c.closed()
		}
		waitUntil(t, "none is open", func() bool { return b.connections.Len() == 0 })
		b.serves("honest")
		if taken := b.server.memory.Taken(); taken != 0 {
			t.Errorf("bodies that are gone take %d bytes", taken)
		}
		if victim, honest := b.used("victim"), b.used("honest"); victim != "0" || honest != "2" {
			t.Errorf("%s of the victim's, %s of the honest one's are counted", victim, honest)
		}
	})
}

// TestLargeBodiesAreBounded holds that a body beyond the memory for all is refused, with nothing recorded, and small
// ones are served.
func TestLargeBodiesAreBounded(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiege(t, 1000, by, nil)
		batch := operationsOf(slices.Repeat([]string{oneOp}, 500)...)
		half := headersOf("/v1/batch", len(batch)) + batch[:len(batch)/2]
		slow := []*client{b.dial().send(half), b.dial().send(half)}
		room := memory.FreeBody
		for room <= len(batch)/2 {
			room *= 2
		}
		halves := 2 * int64(room-memory.FreeBody)
		waitUntil(t, "both halves are there", func() bool { return b.server.memory.Taken() == halves })
		long := oneTail + strings.Repeat(" ", 3*memory.FreeBody)
		if res := b.do(http.MethodPost, "/v1/take", long); res.StatusCode != http.StatusOK { // whose buffer is kept for the next request
			t.Errorf("while there is room: %d", res.StatusCode)
		}
		waitUntil(t, "it is over", func() bool { return b.server.memory.Taken() == halves })
		others := b.server.takeAll()
		receipt := `{"receipt":"` + strings.Repeat("a", 4000) + `"` + strings.Repeat(" ", memory.FreeBody) + `}`
		for _, c := range []struct{ path, body, recorded string }{
			{"/v1/batch", batch, "no"},
			{"/v1/take", long, "no"},
			{"/v1/refund", receipt, "yes"},
		} {
			p := readProblem(t, b.do(http.MethodPost, c.path, c.body))
			if p.Status != http.StatusServiceUnavailable || p.Recorded != c.recorded || !strings.Contains(p.Detail, "smaller parts") {
				t.Errorf("%s: %+v", c.path, p)
			}
		}
		b.serves("honest")
		if got := b.reached[BoundBodies].Load(); got != 3 {
			t.Errorf("%d were refused", got)
		}
		others.Release()
		if res := b.do(http.MethodPost, "/v1/batch", batch); res.StatusCode != http.StatusOK {
			t.Errorf("with room for it: %d", res.StatusCode)
		}
		for _, c := range slow {
			if got := c.send(batch[len(batch)/2:]).status(); got != http.StatusOK {
				t.Errorf("whose half was there is answered %d", got)
			}
		}
		waitUntil(t, "nothing is taken", func() bool { return b.server.memory.Taken() == 0 })
	})
}

// TestGarbage holds that bytes that are not HTTP, or too many, are refused or answered in order, and others are served.
func TestGarbage(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiege(t, 1000, by, nil)
		many := takeFor("pipelined") + takeFor("pipelined") + takeFor("pipelined")
		for _, c := range []struct {
			sent string
			want []int
		}{
			{many + "\x00\x01\x02 garbage\r\n\r\n" + many, []int{200, 200, 200, 400, 0}},
			{"GET / HTTP/9.9\r\n\r\n", []int{505, 0}},
			{"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", []int{400, 0}},
			{"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", []int{400, 0}},
			{"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", []int{431, 0}},
			{"GET /healthz HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", 8<<10) + "\r\n", []int{431, 0}},
			{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 99), []int{400, 0}}, // TLS
			{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{404, 0}},
		} {
			client := b.dial().send(c.sent)
			var got []int
			for range c.want {
				got = append(got, client.status())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%.60q is answered %d, want %d", c.sent, got, c.want)
			}
		}
		b.serves("honest")
		if got := b.used("pipelined"); got != "3" {
			t.Errorf("%s of 3 takes are counted", got)
		}
		waitUntil(t, "none is open", func() bool { return b.connections.Len() == 0 })
	})
}

// TestManyClientsOverFewConnections holds that every answer counts once, and refused requests count nothing, when there
// are more clients than connections.
func TestManyClientsOverFewConnections(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		b := besiege(t, 8, by, nil)
		var answered atomic.Int64
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 5 {
					c := b.dial()
					if c.send(takeFor("shared")).status() == http.StatusOK {
						answered.Add(1)
					}
					_ = c.Close()
				}
			})
		}
		all.Wait()
		waitUntil(t, "none is open", func() bool { return b.connections.Len() == 0 })
		var used int64
		if _, err := fmt.Sscan(b.used("shared"), &used); err != nil || used < answered.Load() || answered.Load() == 0 {
			t.Errorf("%d takes were answered, and %d are counted: %v", answered.Load(), used, err)
		}
	})
}
