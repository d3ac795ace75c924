//go:build unix

package localcassandra

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	envChildDir = "LOCALCASSANDRA_TEST_DIR" // makes this test binary start a process in that folder and then wait to be killed
	deathLimit  = 30 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChildDir); dir != "" {
		startAndWait(dir)
		return
	}
	m.Run()
}

// startAndWait prints the process ID of a child, and then waits for the end of its standard input, which never comes.
func startAndWait(dir string) {
	child, err := startProcess(exec.Command("sleep", "600"), dir)
	if err != nil {
		fmt.Println("starting:", err)
		return
	}
	fmt.Println(child.cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A killed process can't clean up, but its child ends and the child's files are removed.
func TestChildEndsWithAKilledParent(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	dir := filepath.Join(top, "child")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), envChildDir+"="+dir)
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	child, parseErr := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, parseErr, parent.Process.Kill()); err != nil {
		t.Fatalf("the parent printed %q: %v", line, err)
	}
	_ = parent.Wait() // it was killed, as asked

	ctx, cancel := context.WithTimeout(t.Context(), deathLimit)
	defer cancel()
	if err := poll(ctx, func() error { return gone(child, top) }); err != nil {
		t.Error(err)
	}
}

// gone returns nil if the process has ended (or is a zombie) and the folder does not exist.
func gone(pid int, dir string) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	isZombie := err == nil && strings.Contains(string(status), ") Z ")
	if err := syscall.Kill(pid, 0); err == nil && !isZombie {
		return fmt.Errorf("process %d lives", pid)
	}
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("folder %s still exists", dir)
	}
	return nil
}

// A process that ends cleanly does not remove its files.
func TestKilledChildKeepsItsFiles(t *testing.T) {
	dir := t.TempDir()
	child, err := startProcess(exec.Command("sleep", "600"), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(child.pause(), child.kill()); err != nil {
		t.Errorf("pausing and killing: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("its folder is gone: %v", err)
	}
}
