// Package check_test tests what users install with real tools: releases and packages (nfpm, dpkg, rpm), the
// chart (Helm, Kubernetes' own types), the image (Docker), and the services of docker-compose.yml (compose-go, nginx,
// promtool).
//
// It has a go.mod of its own, because Kubernetes' types are larger than all dependencies of the service.
package check_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// root is the folder of the project.
const root = "../.."

// patience is how long a test waits for an event that takes a second or two.
const patience = 60 * time.Second

var update = flag.Bool("update", false, "update the table of the chart's values")

// tool returns the path of a program. With CI=true it must exist.
func tool(t *testing.T, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name)) // may be missing from the PATH
	}
	if err != nil {
		missing(t, fmt.Sprintf("there is no %s: %s", name, from))
	}
	return path
}

// missing skips a test for which this machine lacks something. With CI=true it fails.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// run returns a command's output. If the command fails, the test ends.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return runIn(t, "", nil, name, args...)
}

// runIn is like run, in a folder and with more environment variables.
func runIn(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace returns text with some words replaced by others. Each must be in the text.
func replace(t *testing.T, text string, words ...string) string {
	t.Helper()
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			t.Fatalf("there is no %q in\n%s", words[i], text)
		}
	}
	return strings.NewReplacer(words...).Replace(text)
}

var buildOnce = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "ratelimitd")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", folder, "./cmd/ratelimitd")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return folder, fmt.Errorf("%w\n%s", err, out)
	}
	return folder, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folder, _ := buildOnce(); folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// program returns the path of a ratelimitd built from this tree.
func program(t *testing.T) string {
	t.Helper()
	folder, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "ratelimitd")
}

// mustKnow fails the test if ratelimitd does not know a setting in env.
func mustKnow(t *testing.T, env []string) {
	t.Helper()
	cmd := exec.Command(program(t), "health", "--server=http://127.0.0.1:1", "--timeout=1ms")
	cmd.Env = append([]string{}, env...) // no variables of this process
	out, _ := cmd.CombinedOutput()       // no server runs
	if strings.Contains(string(out), "is not read") {
		t.Errorf("ratelimitd prints: %s", out)
	}
}

// serving is a server process that runs until the test ends.
type serving struct {
	cmd   *exec.Cmd
	log   *log
	ended chan struct{}
}

// log collects the output of a running process.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds p.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the output so far.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a command until the test ends.
func start(t *testing.T, env []string, name string, args ...string) *serving {
	t.Helper()
	s := &serving{cmd: exec.Command(name, args...), log: &log{}, ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = env, s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // the log says why
	}()
	t.Cleanup(s.stop)
	return s
}

// stop ends the process like a service manager.
func (s *serving) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// wait returns when url answers 200 to the Host header host; empty: the URL's host.
func (s *serving) wait(t *testing.T, url string) {
	t.Helper()
	within(t, func() (bool, string) {
		select {
		case <-s.ended:
			t.Fatalf("the process has ended:\n%s", s.log)
		default:
		}
		status, _ := ask(url, "")
		return status == http.StatusOK, fmt.Sprintf("%s answers %d:\n%s", url, status, s.log)
	})
}

// within waits until done returns true, or fails the test with its last message.
func within(t *testing.T, done func() (bool, string)) {
	t.Helper()
	again, late := time.NewTicker(50*time.Millisecond), time.After(patience)
	defer again.Stop()
	for {
		is, why := done()
		if is {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("after %v: %s", patience, why)
		}
	}
}

var asker = &http.Client{Timeout: 10 * time.Second}

// ask returns the status and the body of a GET, with a token unless that is empty; 0: no answer.
func ask(url, token string) (status int, body string) {
	return send(http.MethodGet, url, "", token)
}

// take takes one unit of a policy at a server.
func take(server, policy, identifier, token string) (status int, body string) {
	return send(http.MethodPost, server+"/v1/take", fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier), token)
}

func send(method, url, body, token string) (int, string) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := asker.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// engine fails or skips the test without a Docker engine.
func engine(t *testing.T) {
	t.Helper()
	if err := exec.Command("docker", "info").Run(); err != nil {
		missing(t, "no Docker engine answers")
	}
}

// container runs a container until the test ends, and returns its name.
func container(t *testing.T, args ...string) string {
	t.Helper()
	name := strings.ToLower(fmt.Sprintf("ratelimitd-%s-%d", strings.NewReplacer("/", "-").Replace(t.Name()), os.Getpid()))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", name).Run() }) // it may be gone
	run(t, "docker", append([]string{"run", "-d", "--name", name}, args...)...)
	return name
}
