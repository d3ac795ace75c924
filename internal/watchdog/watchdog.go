//go:build unix

package watchdog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// A Watchdog is a shell that waits on a pipe from this process. If the pipe closes without a word, because this process
// has ended, it runs a command. Unlike a parent-death signal it is not tied to a thread, nor to Linux. A nil one does
// nothing.
type Watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// Start returns one that runs a program with its arguments.
func Start(onDeath ...string) (*Watchdog, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the watchdog's pipe: %w", err)
	}
	defer reader.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `read -r stand_down || exec "$@"`, "watchdog"}, onDeath...)...)
	cmd.Stdin = reader
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this process
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the watchdog: %w", err), writer.Close())
	}
	return &Watchdog{cmd: cmd, pipe: writer}, nil
}

// Over returns one that kills the process of that id.
func Over(pid int) (*Watchdog, error) {
	return Start("/bin/sh", "-c", `kill -KILL "$0"`, strconv.Itoa(pid))
}

// StandDown ends w without its doing anything.
func (w *Watchdog) StandDown() error {
	if w == nil {
		return nil
	}
	_, err := w.pipe.WriteString("\n")
	return errors.Join(err, w.pipe.Close(), w.cmd.Wait())
}
