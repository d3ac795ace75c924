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
)

// A process is a child that a watchdog ends if this process ends first.
type process struct {
	cmd    *exec.Cmd
	dog    *watchdog
	exited chan struct{} // closed when it has ended and was waited for
}

// startProcess starts the command in a process group of its own, so that a Ctrl-C in the terminal reaches it only through
// who started it. Should this process die, the watchdog kills the child and removes dir, and the folder that dir is in if
// nothing else is there.
func startProcess(cmd *exec.Cmd, dir string) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	const killAndRemove = `kill -KILL "$0"; sleep 1; rm -rf "$1"; rmdir "$(dirname "$1")"`
	var err error
	if p.dog, err = startWatchdog("/bin/sh", "-c", killAndRemove, strconv.Itoa(cmd.Process.Pid), dir); err != nil {
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
	return p.dog.standDown()
}

// terminate asks the process to end, and kills it when it has not within a minute.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.dog.standDown()
	case <-timer.C:
		return errors.Join(fmt.Errorf("it did not end within %v and was killed", stopTimeout), p.kill())
	}
}

// A watchdog is a shell that waits on a pipe from this process. If the pipe closes without a word, because this process
// has ended in whatever way, it runs a command. Unlike a parent-death signal it is not tied to a thread, nor to Linux.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startWatchdog(onDeath ...string) (*watchdog, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the watchdog's pipe: %w", err)
	}
	defer reader.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read -r stand_down || exec "$@"`, "watchdog"}, onDeath...)...)
	cmd.Stdin = reader
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the watchdog: %w", err), writer.Close())
	}
	return &watchdog{cmd: cmd, pipe: writer}, nil
}

// standDown ends the watchdog without its running the command. A nil watchdog has nothing to stand down.
func (w *watchdog) standDown() error {
	if w == nil {
		return nil
	}
	_, err := w.pipe.WriteString("\n")
	return errors.Join(err, w.pipe.Close(), w.cmd.Wait())
}

// lockFile takes the lock of that name, waiting for another process that has it. The lock goes with the process.
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
