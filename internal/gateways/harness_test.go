package gateways_test

import (
	"bufio"
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// room is how many requests each key has within the test, and addressRoom how many an address.
const (
	room        = 2
	addressRoom = 100
)

// patience is how long a test waits for what should take milliseconds.
const patience = 20 * time.Second

// behind is what a gateway stands in front of: ratelimitd, which may misbehave, and an
// application.
type behind struct {
	patience   string // of the gateway with ratelimitd
	ratelimitd *httptest.Server
	app        *httptest.Server
	answers    atomic.Pointer[http.HandlerFunc] // in place of ratelimitd's; nil: its own
	asked      atomic.Pointer[http.Request]     // the last that ratelimitd was
}

func newBehind(t *testing.T, trusted string) *behind {
	t.Helper()
	engine := limiter.New(embedded.New(nil), nil)
	limits := []policy.Limit{{Algorithm: "sliding-log", Limit: room, Window: time.Hour}}
	address := []policy.Limit{{Name: "of-an-address", Algorithm: "sliding-log", Limit: addressRoom, Window: time.Hour}}
	err := engine.SetPolicies([]policy.Policy{{Name: "api", Limits: limits}, {Name: "per-address", Limits: address}})
	if err != nil {
		t.Fatal(err)
	}
	proxies, err := origin.ParseProxies(trusted)
	if err != nil {
		t.Fatal(err)
	}
	key, err := origin.ParseSource("header:X-Api-Key")
	if err != nil {
		t.Fatal(err)
	}
	server := api.New(engine, &api.Options{
		Hosts:       new(api.Hosts),
		ForwardAuth: api.ForwardAuth{TrustedProxies: proxies, Identify: []origin.Source{{}, key}},
	})
	b := &behind{patience: "10s"}
	b.ratelimitd = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Store(r.Clone(context.Background()))
		if answer := b.answers.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(b.ratelimitd.Close)
	b.app = httptest.NewServer(http.HandlerFunc(app))
	t.Cleanup(b.app.Close)
	return b
}

// app echoes what it is sent, and has errors of its own. It answers pages of one origin, and
// shows all keys that it sees, as applications do that take X_Api_Key for X-Api-Key.
func app(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Origin") == page {
		w.Header().Set("Access-Control-Allow-Origin", page)
	}
	for name, values := range r.Header {
		if strings.EqualFold(strings.NewReplacer("_", "-", ".", "-").Replace(name), "X-Api-Key") || name == "Authorization" || name == "Cookie" {
			w.Header()["Seen"] = append(w.Header()["Seen"], values...)
		}
	}
	switch r.URL.Path {
	case "/forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	}
	fmt.Fprintf(w, "app: %s %s %s", r.Method, r.URL.RequestURI(), body)
}

// misbehave has ratelimitd answer by h; nil: as ever.
func (b *behind) misbehave(h http.HandlerFunc) {
	if h == nil {
		b.answers.Store(nil)
		return
	}
	b.answers.Store(&h)
}

// misbehaviours are the ways in which a ratelimitd does not decide.
var misbehaviours = map[string]http.HandlerFunc{
	"slow": func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(patience): // a gateway that does not hang up
		}
	},
	"gone":     func(w http.ResponseWriter, _ *http.Request) { say(w, "") },
	"nonsense": func(w http.ResponseWriter, _ *http.Request) { say(w, "220 mail.example.com ESMTP\r\n\r\n") },
}

// say writes to the connection, and closes it.
func say(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// gateway is a running gateway.
type gateway struct{ url string }

// answer is the answer that a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with an API key of its own, or none.
func (g *gateway) ask(t *testing.T, method, path, key string) answer {
	t.Helper()
	headers := []string{"X-Forwarded-For", "198.51.100.1", "Cookie", "secret=1"} // the first is a lie
	if key != "" {
		headers = append(headers, "X-Api-Key", key)
	}
	return g.send(t, method, path, strings.Repeat("body", len(method)-3), headers...)
}

// send sends a request with headers in pairs.
func (g *gateway) send(t *testing.T, method, path, text string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if name := headers[i]; name != http.CanonicalHeaderKey(name) {
			r.Header[name] = append(r.Header[name], headers[i+1]) // as it is written
		} else {
			r.Header.Add(name, headers[i+1])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

// mustCount fails unless g hands on what ratelimitd answers to the two requests that k has,
// and tells ratelimitd no more of them than it needs.
func (b *behind) mustCount(t *testing.T, g *gateway) {
	t.Helper()
	for i, remaining := range []string{"r=1", "r=0"} {
		a := g.mustServe(t, "k")
		if !strings.Contains(a.header.Get("RateLimit"), remaining) || !strings.Contains(a.header.Get("RateLimit-Policy"), "q=2") {
			t.Errorf("request %d: %v", i, a.header)
		}
	}
	asked := b.asked.Load()
	if asked.ContentLength > 0 || asked.Header.Get("Cookie") != "" || asked.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("ratelimitd is told too much: %d bytes, %v", asked.ContentLength, asked.Header)
	}
}

// mustServe sends a request that passes to the application and back, whole.
func (g *gateway) mustServe(t *testing.T, key string) answer {
	t.Helper()
	a := g.ask(t, http.MethodPost, "/a?b=c", key)
	if a.status != http.StatusOK || a.body != "app: POST /a?b=c body" {
		t.Errorf("key %s: %d %q", key, a.status, a.body)
	}
	return a
}

// mustNotDecide looks for all that a client is told while nobody decides.
func mustNotDecide(t *testing.T, how string, a answer) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" ||
		!strings.Contains(a.body, "temporary-reduced-capacity") {
		t.Errorf("%s: %d %v %q", how, a.status, a.header, a.body)
	}
}

// readExample returns the file of an example with these words in place of others, each of
// which must be there.
func readExample(t *testing.T, path string, words ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", path))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			t.Fatalf("%s has no %q", path, words[i])
		}
		text = strings.ReplaceAll(text, words[i], words[i+1])
	}
	return text
}

// writeExample writes to path what readExample returns.
func writeExample(t *testing.T, path, example string, words []string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(readExample(t, example, words...)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addressOf returns the address of a server.
func addressOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// freeAddress returns one where nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// tries is how often a gateway is started: somebody else may take its address first.
const tries = 3

// start runs a gateway until the test ends, at an address that command is told. It serves once
// it has logged ready.
func start(t *testing.T, ready string, command func(address string) *exec.Cmd) *gateway {
	t.Helper()
	for try := 1; ; try++ {
		address := freeAddress(t)
		cmd := command(address)
		log, err := launch(t, ready, cmd)
		if err == nil {
			return &gateway{url: "http://" + address}
		}
		if try == tries {
			t.Fatalf("%s: %v\n%s", cmd, err, log)
		}
	}
}

// launch runs a command until the test ends, and returns once it has logged ready.
func launch(t *testing.T, ready string, command *exec.Cmd) (*bytes.Buffer, error) {
	t.Helper()
	log := new(bytes.Buffer)
	stderr, err := command.StderrPipe()
	if err != nil {
		return log, err
	}
	if err := command.Start(); err != nil {
		return log, err
	}
	late := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewReader(stderr)
	for !strings.Contains(log.String(), ready) {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if err != nil {
			return log, errors.Join(err, command.Wait())
		}
	}
	var rest sync.WaitGroup
	rest.Go(func() { _, _ = io.Copy(log, lines) })
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		rest.Wait()
		if err := command.Wait(); err != nil {
			t.Errorf("%s: %v", command.Path, err)
		}
		if t.Failed() {
			t.Logf("%s", log)
		}
	})
	return log, nil
}

// missing skips the test, or fails it where all must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
