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

// process is one that was started here.
type process struct {
	cmd    *exec.Cmd
	log    string             // file of what it printed
	dog    *watchdog.Watchdog // kills it when this process is gone
	exited chan struct{}      // closed when it has ended
}

// stopLimit is how long a process may take to end when it is asked to, before it is killed.
const stopLimit = 15 * time.Second

// start starts a program, in a process group of its own: a Ctrl-C is for this process. What it prints goes to a file.
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
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	if p.dog, err = watchdog.Over(p.pid()); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end, waits for it, and kills it in the end. A nil process has ended.
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

// failed returns err with the end of what the process printed.
func (p *process) failed(err error) error {
	const most = 2000
	log, _ := os.ReadFile(p.log) // err is what counts
	return fmt.Errorf("%s: %w\n%s", filepath.Base(p.cmd.Path), err, log[max(0, len(log)-most):])
}

const (
	startLimit = time.Minute // schema changes of Cassandra take their time
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

// listening waits for the line in which a service says where it listens, and returns the host and port.
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
		return errors.New("it does not say where it listens")
	})
	return address, err
}
