package clitest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a serve command in this process.
type Server struct {
	URL   string
	More  *Log // standard output after the first line
	Log   *Log
	Stop  context.CancelFunc // as a signal does
	ended chan struct{}
	code  int // once it has ended
}

// Start runs serve with these flags on a free port and waits for its first line.
func Start(t testing.TB, environ []string, flags ...string) *Server {
	t.Helper()
	return StartCommand(t, "serve", environ, flags...)
}

// StartCommand is Start for a command that serves as serve does.
func StartCommand(t testing.TB, command string, environ []string, flags ...string) *Server {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{Log: NewLog(), More: NewLog(), ended: make(chan struct{})}
	s.Stop = func() {
		http.DefaultClient.CloseIdleConnections() // it would wait for them to leave
		stop()
	}
	out, in := io.Pipe()
	go func() {
		defer close(s.ended)
		s.code = Run(ctx, append([]string{command, "--listen=127.0.0.1:0"}, flags...), environ, strings.NewReader(""), in, s.Log)
		_ = in.Close() // never fails
	}()
	t.Cleanup(func() {
		s.Stop()
		s.Wait(t)
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v\n%s", err, s.Log)
	}
	go func() { _, _ = io.Copy(s.More, lines) }() // until serve ends
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !found {
		t.Fatalf("first line is %q", line)
	}
	s.URL = url
	return s
}

// Wait waits for the service to end, and returns its exit code.
func (s *Server) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.code
	case <-time.After(Patience):
		t.Fatalf("still running after %v:\n%s", Patience, s.Log)
		return -1
	}
}

// Get returns the status of a GET.
func (s *Server) Get(t *testing.T, path string) (status int) {
	t.Helper()
	resp, err := http.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// Body returns the answer to a GET.
func (s *Server) Body(t *testing.T, path string) string {
	t.Helper()
	return Fetch(t, s.URL+path)
}

// Fetch returns the answer to a GET, whatever its status.
func Fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// WaitForMetric waits until the metrics have text, because the outcome of a request is counted after its answer.
func (s *Server) WaitForMetric(t *testing.T, text string) {
	t.Helper()
	s.WaitForBody(t, "/metrics", text)
}

// WaitForBody waits until the answer to a GET has text.
func (s *Server) WaitForBody(t *testing.T, path, text string) {
	t.Helper()
	again, late := time.NewTicker(10*time.Millisecond), time.After(Patience)
	defer again.Stop()
	for !strings.Contains(s.Body(t, path), text) {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("no %s in %s within %v:\n%s", text, path, Patience, s.Body(t, path))
		}
	}
}

// PolicyOf returns a policy of one limit, named as its algorithm, of so many units in 31 days, as a line of a file of
// policies.
func PolicyOf(algorithm string, units int) string {
	limit, window := "limit", "window"
	switch algorithm {
	case "conversion":
		limit = "after"
	case "concurrent":
		window = "hold"
	}
	return fmt.Sprintf("  - {name: %s, limits: [{algorithm: %s, %s: %d, %s: 31d}]}\n", algorithm, algorithm, limit, units, window)
}

// TakeBody returns the body of a request for one unit under a policy.
func TakeBody(policy string) string {
	return fmt.Sprintf(`{"policy": %q, "identifier": "+4915112345678"}`, policy)
}

// Take returns the status of a take.
func (s *Server) Take(t *testing.T, policy string) (status int) {
	t.Helper()
	return s.post(t, "/v1/take", TakeBody(policy))
}

// TakeOf takes a unit under a policy for somebody, and returns the status.
func (s *Server) TakeOf(t *testing.T, policy, identifier string) (status int) {
	t.Helper()
	return s.post(t, "/v1/take", fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier))
}

func (s *Server) post(t *testing.T, path, body string) (status int) {
	t.Helper()
	resp, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// Log is a log in which tests can wait for a text.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // holds one token when there is something new
}

// NewLog returns an empty Log.
func NewLog() *Log { return &Log{wrote: make(chan struct{}, 1)} }

// Write appends p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// WaitFor waits until the log has text as many times.
func (l *Log) WaitFor(t testing.TB, text string, times int) {
	t.Helper()
	late := time.After(Patience)
	for strings.Count(l.String(), text) < times {
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("%q is not %d times in the log within %v:\n%s", text, times, Patience, l)
		}
	}
}

// Asked returns the status of a take with token.
func (s *Server) Asked(t *testing.T, token string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.URL+"/v1/take", strings.NewReader(`{"policy":"api","identifier":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
