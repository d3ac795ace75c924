//go:build unix

package localcassandra

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/watchdog"
)

// A process is a child that a watchdog ends if this process ends first.
type process struct {
	cmd    *exec.Cmd
	dog    *watchdog.Watchdog
	exited chan struct{} // closed when it has ended and was waited for
}

// startProcess starts the command in a process group of its own, so that a Ctrl-C in the terminal
// reaches it only through its parent. Should this process die, the watchdog kills the child and
// removes dir, and also its parent folder if that is empty.
func startProcess(cmd *exec.Cmd, dir string) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(p.exited)
	}()
	const killAndRemove = `kill -KILL "$0"; sleep 1; rm -rf "$1"; rmdir "$(dirname "$1")"`
	var err error
	if p.dog, err = watchdog.Start("/bin/sh", "-c", killAndRemove, strconv.Itoa(cmd.Process.Pid), dir); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (p *process) pause() error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends the process at once, and returns when it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return p.dog.StandDown()
}

// terminate asks the process to end, and kills it if it has not ended within a minute.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.dog.StandDown()
	case <-timer.C:
		return errors.Join(fmt.Errorf("it did not end within %v and was killed", stopTimeout), p.kill())
	}
}

// lockFile takes the lock with this name, and waits while another process has it. The lock ends with the process.
func lockFile(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}
