//go:build unix

package watchdog_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/watchdog"
)

// TestMain is the process that starts a child and dies, if it is told to.
func TestMain(m *testing.M) {
	if os.Getenv("WATCHDOG_TEST_DIES") == "" {
		os.Exit(m.Run())
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		panic(err)
	}
	if _, err := watchdog.Over(child.Process.Pid); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(child.Process.Pid) + "\n")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestChildrenOfTheDeadEnd although nobody was there to end them.
func TestChildrenOfTheDeadEnd(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "WATCHDOG_TEST_DIES=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(20 * time.Second); isAlive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlives its parent")
		}
	}
}

// isAlive reports whether a process runs. One that ended and that nobody has waited for does not.
func isAlive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(string(state), "Z")
}

// TestStoodDown leaves the process alone.
func TestStoodDown(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := watchdog.Over(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.StandDown(); err != nil {
		t.Errorf("standing down: %v", err)
	}
	if !isAlive(child.Process.Pid) {
		t.Error("it has killed the child all the same")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
}
