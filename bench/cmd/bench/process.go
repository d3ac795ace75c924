package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/watchdog"
)

// process is a started process.
type process struct {
	cmd    *exec.Cmd
	log    string             // file of its output
	dog    *watchdog.Watchdog // kills it when this process ends
	exited chan struct{}      // closed when it has ended
}

// stopLimit is how long a process may take to end after SIGTERM, before it is killed.
const stopLimit = 15 * time.Second

// start starts a program, in a process group of its own, so that a Ctrl-C reaches only this process. Its output goes to a file.
func (b *bench) start(program string, args ...string) (*process, error) {
	log, err := os.CreateTemp(b.scratch, filepath.Base(program)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{log: log.Name(), exited: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, b.scratch
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // its log says how it ended
		close(p.exited)
	}()
	if p.dog, err = watchdog.Over(p.pid()); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end, waits for it, and finally kills it. A nil process has ended.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	late := time.AfterFunc(stopLimit, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.exited
	return errors.Join(err, p.dog.StandDown())
}

// failed returns err with the end of the process's output.
func (p *process) failed(err error) error {
	const most = 2000
	log, _ := os.ReadFile(p.log) // err matters more
	return fmt.Errorf("%s: %w\n%s", filepath.Base(p.cmd.Path), err, log[max(0, len(log)-most):])
}

const (
	startLimit = time.Minute // Cassandra's schema changes take long
	pollEvery  = 20 * time.Millisecond
)

// ready waits until probe succeeds, as long as the process lives.
func (p *process) ready(probe func() error) error {
	limit, ticker := time.After(startLimit), time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := probe()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			return p.failed(errors.New("it ended"))
		case <-limit:
			return p.failed(err)
		}
	}
}

// listening waits for the line with the address of a service, and returns the host and port.
func (p *process) listening() (address string, err error) {
	err = p.ready(func() error {
		log, err := os.Open(p.log)
		if err != nil {
			return err
		}
		defer log.Close()
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var found bool
			if address, found = strings.CutPrefix(lines.Text(), "listening on http://"); found {
				return nil
			}
		}
		return errors.New("it does not print its address")
	})
	return address, err
}
