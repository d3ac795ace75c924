package serve_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// abuse makes TestAbuse take minutes and print the server's costs.
var (
	abuse     = flag.Bool("abuse", false, "abuse a server at full size, and print a table")
	abuseTime = flag.Duration("abuse.for", time.Minute, "how long each kind of -abuse lasts")
)

// siege is a server that is abused, and its clients.
type siege struct {
	*process
	connections int // abusers' at the same time
	lasts       time.Duration
	address     string
	source      net.IP // of abusers' connections: each kind has ports of its own
	counted     atomic.Int64
	turnedAway  atomic.Int64
}

const abusePolicies = `policies:
  - {name: honest, limits: [{algorithm: fixed-window, limit: 1000000000, window: 24h}]}
  - {name: flood, limits: [{algorithm: fixed-window, limit: 5, window: 1h}], block_for: 1m}
`

// TestAbuse abuses a server in a process of its own in every way there is, one after the
// other, while honest callers go on: all of them are answered, and each answer counts
// once. With -abuse it does so for minutes, and prints a table.
func TestAbuse(t *testing.T) {
	s := &siege{connections: 100, lasts: 300 * time.Millisecond}
	keys := 1 << 12
	if *abuse {
		s.connections, s.lasts, keys = 10_000, *abuseTime, 1<<20
	}
	most := s.connections + s.connections/5
	s.process = startProcess(t, "--policies="+clitest.Write(t, "p.yaml", abusePolicies), "--log-level=error",
		"--max-keys="+strconv.Itoa(keys), "--max-connections="+strconv.Itoa(most))
	s.address = strings.TrimPrefix(s.url, "http://")
	callers := newCallers(s.url)
	defer callers.close()
	table := newAbuseTable(s)
	for i, kind := range []struct {
		name    string
		failing bool // honest callers may be turned away, and are told so
		do      func(ctx context.Context, s *siege)
	}{
		{"nothing", false, func(ctx context.Context, _ *siege) { <-ctx.Done() }},
		{"idle connections", false, idleConnections},
		{"headers that drip", false, drippingHeaders},
		{"bodies half sent", false, halfBodies},
		{"large bodies that drip", false, drippingBatches},
		{"largest batches", false, largestBatches},
		{"answers that nobody reads", false, unreadAnswers},
		{"garbage", false, garbage},
		{"too many connections", true, tooManyConnections},
		{"new keys, by batches", false, newKeys},
		{"nothing, afterwards", false, func(ctx context.Context, _ *siege) { <-ctx.Done() }},
	} {
		s.source = net.IPv4(127, 0, 0, byte(2+i))
		ctx, stop := context.WithCancel(t.Context())
		var abusers sync.WaitGroup
		abusers.Go(func() { kind.do(ctx, s) })
		served := callers.callFor(ctx, s.lasts)
		table.add(t, kind.name, served) // while it is abused
		stop()
		abusers.Wait()
		if served.failed > 0 && !kind.failing || len(served.took) == 0 {
			t.Errorf("%s: %d honest calls were answered, %d were not: %v", kind.name, len(served.took), served.failed, served.err)
		}
		// While abusers' connections are not all gone yet, the next ones are too many, and honest callers' are closed for them.
		waitUntil(t, func() bool {
			seen, answered := s.look(t)
			return answered && seen.connections <= 2*len(callers.answered)
		})
		if kind.failing {
			callers.close() // some of them are closed already at the other end
		}
	}
	callers.check(t)
	t.Logf("new keys: %d counted, %d turned away\n%s", s.counted.Load(), s.turnedAway.Load(), table)
}

// many connects n abusers again and again until ctx ends.
func (s *siege) many(ctx context.Context, n int, do func(ctx context.Context, conn net.Conn)) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.source}}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if conn, err := dialer.DialContext(ctx, "tcp", s.address); err == nil {
					stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
					do(ctx, conn)
					stop()
					_ = conn.Close()
				}
				pauseFor(ctx, 10*time.Millisecond)
			}
		})
	}
	all.Wait()
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func request(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// batchOf returns a batch of 1000 takes for what identifier returns, padded to length.
func batchOf(identifier func(i int) string, length int) string {
	var b strings.Builder
	b.WriteString(`{"operations":[`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"op":"take","policy":"flood","identifier":%q}`, identifier(i))
	}
	b.WriteString("]}")
	return b.String() + strings.Repeat(" ", max(0, length-b.Len()))
}

func anybody(i int) string { return "anybody " + strconv.Itoa(i%7) }

// send writes text and waits until the connection is closed.
func send(conn net.Conn, text string) {
	if _, err := io.WriteString(conn, text); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// drip writes some of text at once, and then a byte now and then.
func drip(ctx context.Context, conn net.Conn, text string, atOnce int) {
	_, err := io.WriteString(conn, text[:atOnce])
	for ; err == nil && atOnce < len(text) && ctx.Err() == nil; atOnce++ {
		pauseFor(ctx, 500*time.Millisecond)
		_, err = io.WriteString(conn, text[atOnce:atOnce+1])
	}
}

func idleConnections(ctx context.Context, s *siege) {
	s.many(ctx, s.connections, func(_ context.Context, conn net.Conn) { send(conn, request("/v1/take", clitest.TakeBody("flood"))) })
}

func tooManyConnections(ctx context.Context, s *siege) {
	s.many(ctx, s.connections+s.connections/2, func(_ context.Context, conn net.Conn) {
		send(conn, request("/v1/take", clitest.TakeBody("flood")))
	})
}

func drippingHeaders(ctx context.Context, s *siege) {
	s.many(ctx, s.connections, func(ctx context.Context, conn net.Conn) {
		drip(ctx, conn, request("/v1/take", clitest.TakeBody("flood")), 5)
	})
}

func halfBodies(ctx context.Context, s *siege) {
	text := request("/v1/take", clitest.TakeBody("flood"))
	s.many(ctx, s.connections, func(_ context.Context, conn net.Conn) { send(conn, text[:len(text)-9]) })
}

func drippingBatches(ctx context.Context, s *siege) {
	text := request("/v1/batch", batchOf(anybody, 1<<20))
	s.many(ctx, s.connections/10, func(ctx context.Context, conn net.Conn) { drip(ctx, conn, text, len(text)-100) })
}

func largestBatches(ctx context.Context, s *siege) {
	text := request("/v1/batch", batchOf(anybody, 1<<20))
	s.many(ctx, 4, func(ctx context.Context, conn net.Conn) {
		for ctx.Err() == nil {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, 100_000); err != nil { // an answer is longer, and the next request has to wait for it
				return
			}
		}
	})
}

func unreadAnswers(ctx context.Context, s *siege) {
	text := strings.Repeat(request("/v1/batch", batchOf(anybody, 0)), 20)
	s.many(ctx, s.connections/10, func(ctx context.Context, conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		<-ctx.Done()
	})
}

func garbage(ctx context.Context, s *siege) {
	kinds := []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 999),
		"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n",
		strings.Repeat(request("/v1/take", `{"policy":`), 10) + "\x00\r\n\r\n",
		request("/v1/batch", strings.Repeat("[", 1<<20)),
	}
	var next atomic.Int64
	s.many(ctx, s.connections/10, func(_ context.Context, conn net.Conn) {
		send(conn, kinds[next.Add(1)%int64(len(kinds))])
	})
}

// newKeys takes for identifiers that nobody has seen, as fast as two clients can.
func newKeys(ctx context.Context, s *siege) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(1)) * 1000
				body := batchOf(func(i int) string { return "new " + strconv.Itoa(from+i) }, 0)
				resp, err := http.Post(s.url+"/v1/batch", "application/json", strings.NewReader(body))
				if err != nil {
					continue
				}
				answer, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				s.counted.Add(int64(bytes.Count(answer, []byte(`"status":200,`))))
				s.turnedAway.Add(int64(bytes.Count(answer, []byte(`"status":503,`))))
			}
		})
	}
	all.Wait()
}

// abuseTable has the server's costs, a row for each kind of abuse.
type abuseTable struct {
	siege *siege
	rows  strings.Builder
	tab   *tabwriter.Writer
}

func newAbuseTable(s *siege) *abuseTable {
	a := &abuseTable{siege: s}
	a.tab = tabwriter.NewWriter(&a.rows, 0, 0, 1, ' ', 0)
	fmt.Fprintln(a.tab, "| abuse\t| honest calls\t| not answered\t| p50\t| p99\t| RSS\t| connections\t| fds\t| goroutines\t|")
	return a
}

// add measures the server, which is still being abused.
func (a *abuseTable) add(t *testing.T, name string, served *service) {
	t.Helper()
	seen, answered := a.siege.look(t)
	connections, goroutines := "–", "–"
	if answered {
		connections, goroutines = strconv.Itoa(seen.connections), strconv.Itoa(seen.goroutines)
	}
	fmt.Fprintf(a.tab, "| %s\t| %d\t| %d\t| %v\t| %v\t| %d MiB\t| %s\t| %d\t| %s\t|\n", name, len(served.took), served.failed,
		served.quantile(50), served.quantile(99), seen.residentBytes>>20, connections, seen.fds, goroutines)
}

// String returns the rows.
func (a *abuseTable) String() string {
	_ = a.tab.Flush()
	return a.rows.String()
}
