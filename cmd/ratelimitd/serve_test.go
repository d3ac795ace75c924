package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 20 * time.Second

// logged is a log that can be waited for.
type logged struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // holds one token when there is something new
}

func newLogged() *logged { return &logged{wrote: make(chan struct{}, 1)} }

// Write appends p.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// String returns all that was written.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waitFor waits until the log holds text so many times.
func (l *logged) waitFor(t *testing.T, text string, times int) {
	t.Helper()
	late := time.After(patience)
	for strings.Count(l.String(), text) < times {
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("%q is not %d times in the log within %v:\n%s", text, times, patience, l)
		}
	}
}

// waitForMetric waits until the metrics have text: what a request came to is counted after
// its answer.
func (s *server) waitForMetric(t *testing.T, text string) {
	t.Helper()
	again, late := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer again.Stop()
	for !strings.Contains(s.body(t, "/metrics"), text) {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("no %s in the metrics within %v:\n%s", text, patience, s.body(t, "/metrics"))
		}
	}
}

// server is a serve command in this process.
type server struct {
	url   string
	more  *logged // what stdout has after the first line
	log   *logged
	stop  context.CancelFunc // as a signal does
	ended chan struct{}
	code  int // once it has ended
}

// start runs serve with these flags on a free port and waits for its first line.
func start(t testing.TB, environ []string, flags ...string) *server {
	t.Helper()
	return startCommand(t, "serve", environ, flags...)
}

// startCommand is start for a command that serves as serve does.
func startCommand(t testing.TB, command string, environ []string, flags ...string) *server {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &server{log: newLogged(), more: newLogged(), ended: make(chan struct{})}
	s.stop = func() {
		http.DefaultClient.CloseIdleConnections() // it would wait for them to leave
		stop()
	}
	out, in := io.Pipe()
	go func() {
		defer close(s.ended)
		s.code = run(ctx, append([]string{command, "--listen=127.0.0.1:0"}, flags...), environ, strings.NewReader(""), in, s.log)
		_ = in.Close() // never fails
	}()
	t.Cleanup(func() {
		s.stop()
		s.wait(t)
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v\n%s", err, s.log)
	}
	go func() { _, _ = io.Copy(s.more, lines) }() // until serve ends
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !found {
		t.Fatalf("first line is %q", line)
	}
	s.url = url
	return s
}

func (s *server) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.code
	case <-time.After(patience):
		t.Fatalf("still running after %v:\n%s", patience, s.log)
		return -1
	}
}

func (s *server) get(t *testing.T, path string) (status int) {
	t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (s *server) body(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(s.url + path)
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

func takeBody(policy string) string {
	return fmt.Sprintf(`{"policy": %q, "identifier": "+4915112345678"}`, policy)
}

func (s *server) take(t *testing.T, policy string) (status int) {
	t.Helper()
	resp, err := http.Post(s.url+"/v1/take", "application/json", strings.NewReader(takeBody(policy)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestServe(t *testing.T) {
	s := start(t, []string{"RATELIMITD_LISEN=x"})
	if got := s.get(t, "/healthz"); got != http.StatusOK {
		t.Errorf("healthz: %d", got)
	}
	if got := s.get(t, "/readyz"); got != http.StatusOK {
		t.Errorf("readyz: %d", got)
	}
	for i := range 6 {
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if got := s.take(t, "login"); got != want {
			t.Errorf("take %d: status %d, want %d", i+1, got, want)
		}
	}
	for _, want := range []string{
		`ratelimitd_decisions_total{`, `policy="login"`, "ratelimitd_http_request_duration_seconds", "go_goroutines",
	} {
		if got := s.body(t, "/metrics"); !strings.Contains(got, want) {
			t.Errorf("no %s in the metrics:\n%s", want, got)
		}
	}
	s.stop()
	if code := s.wait(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"hashed by plain SHA-256", "RATELIMITD_LISEN is not read: did you mean RATELIMITD_LISTEN?", "stopped"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, s.log)
		}
	}
	if strings.Contains(s.log.String(), "4915112345678") {
		t.Errorf("an identifier is in the log:\n%s", s.log)
	}
}

func policiesNamed(name string) string {
	return "policies: [{name: " + name + ", limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}]\n"
}

func TestReload(t *testing.T) {
	file := writeFile(t, "p.yaml", policiesNamed("first"))
	s := start(t, nil, "--policies", file)
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	s.log.waitFor(t, "policies in force", 1)
	if got := s.take(t, "first"); got != http.StatusOK {
		t.Fatalf("take: status %d", got)
	}

	replace(policiesNamed("second"))
	s.log.waitFor(t, "policies in force", 2)
	if first, second := s.take(t, "first"), s.take(t, "second"); first != http.StatusNotFound || second != http.StatusOK {
		t.Errorf("after a reload: the old policy %d, the new one %d", first, second)
	}

	replace("policies: [{name: third, limits: 10}, {name: fourth, limits: 11}]\n")
	s.log.waitFor(t, "those in force stay", 1)
	if logged := s.log.String(); !strings.Contains(logged, "mistakes=2") ||
		!strings.Contains(logged, "p.yaml:1: policies[0].limits: a number where a list belongs: start each limit with a dash; ") ||
		!strings.Contains(logged, "p.yaml:1: policies[1].limits: a number where a list belongs") {
		t.Errorf("the mistakes are not in the log:\n%s", logged)
	}
	if got := s.take(t, "second"); got != http.StatusOK {
		t.Errorf("after a bad reload: status %d", got)
	}

	replace(policiesNamed("fourth"))
	s.log.waitFor(t, "policies in force", 3)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.log.waitFor(t, "policies in force", 4)
	if got := s.take(t, "fourth"); got != http.StatusOK {
		t.Errorf("after SIGHUP: status %d", got)
	}
}

func TestHangupWithoutAFileChangesNothing(t *testing.T) {
	s := start(t, nil)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.log.waitFor(t, "nothing to reload", 1)
	if got := s.take(t, "login"); got != http.StatusOK {
		t.Errorf("take: status %d", got)
	}
}

// A request whose body is still on its way when the signal comes is answered; new
// ones are not accepted.
func TestStoppingAnswersWhatIsInFlight(t *testing.T) {
	s := start(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	body := takeBody("login")
	fmt.Fprintf(conn, "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", len(body))
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("before the body: %q, %v", line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil { // the empty line after it
		t.Fatal(err)
	}
	s.stop()
	s.log.waitFor(t, "stopping", 1)
	for deadline := time.Now().Add(patience); ; {
		late, err := net.Dial("tcp", conn.RemoteAddr().String())
		if err != nil {
			break
		}
		_ = late.Close()
		if time.Now().After(deadline) {
			t.Fatal("still accepting connections")
		}
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("no answer: %v\n%s", err, s.log)
	}
	defer resp.Body.Close()
	var decision struct{ Allowed bool }
	if err := json.NewDecoder(resp.Body).Decode(&decision); err != nil || resp.StatusCode != http.StatusOK || !decision.Allowed {
		t.Errorf("answer: status %d, %+v, %v", resp.StatusCode, decision, err)
	}
	if code := s.wait(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServeFailsWithOneWhenThePortIsTaken(t *testing.T) {
	s := start(t, nil)
	code, stdout, stderr := execute(t, nil, "serve", "--listen", strings.TrimPrefix(s.url, "http://"))
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
}

func TestSettingsFromEverywhere(t *testing.T) {
	policies := writeFile(t, "p.yaml", policiesNamed("mine"))
	key := writeFile(t, "key", "k:00112233445566778899aabbccddeeff\n")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	config := writeFile(t, "c.yaml", "policies: "+policies+"\nlog-format: text\nhash-key-file: "+key+"\n")
	s := start(t, []string{"RATELIMITD_LOG_FORMAT=json", "RATELIMITD_CONFIG=" + config})
	if got := s.take(t, "mine"); got != http.StatusOK {
		t.Errorf("take: status %d", got)
	}
	log := s.log.String()
	if !strings.HasPrefix(log, "{") || !strings.Contains(log, "everybody on this machine may read the hash key") ||
		strings.Contains(log, "plain SHA-256") {
		t.Errorf("log:\n%s", log)
	}
}

func TestSignalsEndTheProgram(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "serve")
			cmd.Env = append(os.Environ(), beMain+"=1", "RATELIMITD_LISTEN=127.0.0.1:0")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening on http://127.0.0.1:") {
				t.Errorf("first line %q, %v", line, err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v, want exit code 0", err)
			}
		})
	}
}
