// Package clitest runs the command line of ratelimitd within tests: commands that end by themselves, and services.
package clitest

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Patience is the time that tests wait for events that usually take milliseconds. It is longer than two checks of the
// settings of other instances, which are ten seconds apart, because a difference counts once two checks have found it.
const Patience = time.Minute

var update = flag.Bool("update", false, "write the golden files anew")

// asProgram makes a test binary the program itself.
const asProgram = "BE_THE_PROGRAM"

// Main runs the tests, or ratelimitd if Environ made the environment of this process. It ends the process.
func Main(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		cassandratest.Main(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// Environ returns an environment in which the binary of this process is ratelimitd, for tests of signals and of processes
// that are killed.
func Environ() []string { return append(os.Environ(), asProgram+"=1") }

// Run executes a command line and returns the exit code.
func Run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	process := &command.Process{Version: "ratelimitd of a test", Environ: environ, Now: time.Now}
	return cli.Run(ctx, process, args, stdin, stdout, stderr)
}

// Execute runs a command line that ends by itself.
func Execute(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return ExecuteWith(t, strings.NewReader(""), environ, args...)
}

// ExecuteWith is Execute with stdin as standard input.
func ExecuteWith(t *testing.T, stdin io.Reader, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(context.Background(), args, environ, stdin, &out, &err)
	return code, out.String(), err.String()
}

// Golden compares got with the file name in testdata, or with -update writes that file.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant as in %s:\n%s", got, file, want)
	}
}

// Write writes a file in a new folder, and returns its path.
func Write(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	Rewrite(t, path, text)
	return path
}

// Rewrite replaces a file atomically.
func Rewrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
