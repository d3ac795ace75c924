package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// storeTimeout is more than the default, because the machine that runs tests is busy, and
// every call should be decided.
const storeTimeout = 5 * time.Second

// server is the real ratelimitd, as a process of its own.
type server struct {
	url      string
	keyspace string
	binary   string
	flags    []string
	log      logged
	command  *exec.Cmd
	rest     sync.WaitGroup // reads the lines after the first one on stdout
}

// logged is the output of a process.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the whole output.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// build compiles ratelimitd and returns the binary.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ratelimitd")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/ratelimitd").CombinedOutput()
	if err != nil {
		t.Fatalf("building ratelimitd: %v\n%s", err, output)
	}
	return binary
}

// startServer migrates a new keyspace and serves from it until the test
// ends. keyFile is empty for none.
func startServer(t *testing.T, binary, keyFile string) *server {
	t.Helper()
	s := &server{binary: binary, keyspace: cassandratest.Keyspace(t)}
	hosts := strings.Join(cassandratest.Hosts(t), ",")
	s.flags = []string{"--log-level=debug", "--cassandra-hosts=" + hosts, "--cassandra-keyspace=" + s.keyspace}
	migrate := s.ratelimitd("migrate")
	migrate.Stdout = &s.log
	if err := migrate.Run(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, &s.log)
	}
	s.command = s.ratelimitd("serve", "--listen=127.0.0.1:0", "--store=cassandra", "--policies=policies.yaml",
		"--store-timeout="+storeTimeout.String(), "--hash-key-file="+keyFile)
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v\n%s", err, &s.log)
	}
	s.rest.Go(func() { _, _ = io.Copy(&s.log, lines) })
	s.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return s
}

// ratelimitd returns a command of the binary that logs to s.log, without settings of
// this machine's.
func (s *server) ratelimitd(command string, flags ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, append(append([]string{command}, s.flags...), flags...)...)
	cmd.Stderr = &s.log
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "RATELIMITD_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	return cmd
}

// stop ends the server like a user, and fails the test if it does not end cleanly.
// A second call does nothing.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if s.command == nil {
		return
	}
	command := s.command
	s.command = nil
	if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGTERM: %v", err)
	}
	const most = 20 * time.Second // twice the promised time
	timer := time.AfterFunc(most, func() { _ = command.Process.Kill() })
	defer timer.Stop()
	s.rest.Wait()
	if err := command.Wait(); err != nil {
		t.Errorf("ratelimitd: %v\n%s", err, s.log.String())
	}
}

func (s *server) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics: status %d, %v", resp.StatusCode, err)
	}
	return string(text)
}
