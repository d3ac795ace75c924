//go:build unix

package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faultclock"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
	"github.com/ratelimitd/ratelimitd/internal/watchdog"
)

// process is a ratelimitd that is started again after its death. Its methods except address
// are for one goroutine at a time.
type process struct {
	number int
	binary string
	args   []string
	clock  string        // file of its clock
	log    string        // file of its log
	ahead  time.Duration // its clock, at each start
	wire   *wire         // through which other processes reach it; nil: they don't

	mu    sync.Mutex
	url   string
	cmd   *exec.Cmd
	dog   *watchdog.Watchdog // kills it when this process ends
	ended chan struct{}      // closed when it has ended
}

func (r *run) newProcess(number int, ahead time.Duration, more ...string) (p *process, err error) {
	name := filepath.Join(r.Dir, fmt.Sprintf("%d-process%d", r.Seed, number))
	p = &process{
		number: number, binary: r.Binary, clock: name + ".clock", log: name + ".log", ahead: ahead,
		args: append([]string{
			"serve", "--listen=127.0.0.1:0", "--policies=" + r.policiesFile(), "--store=cassandra", r.hosts(), keyspace,
			"--consistency=QUORUM", "--serial-consistency=SERIAL",
			"--clock-tolerance=" + r.Tolerance.String(), "--store-timeout=" + r.StoreTimeout.String(),
		}, more...),
	}
	if schedule.Peers(r.Seed) {
		if p.wire, err = newWire(); err != nil {
			return nil, err
		}
		p.args = append(p.args, "--peer-listen=127.0.0.1:0", "--peer-address="+p.wire.address())
	}
	return p, nil
}

// close ends the process, and its wire.
func (p *process) close() error {
	err := p.kill()
	if p.wire != nil {
		err = errors.Join(err, p.wire.close())
	}
	return err
}

const keyspace = "--cassandra-keyspace=faults"

func (r *run) hosts() string { return "--cassandra-hosts=" + strings.Join(r.cluster.Hosts(), ",") }

// migrate creates the keyspace and its tables; new nodes may be too slow at first.
func (r *run) migrate(ctx context.Context) error {
	return poll(ctx, func() error {
		out, err := exec.CommandContext(ctx, r.Binary, "migrate", r.hosts(), keyspace).CombinedOutput()
		if err != nil {
			return fmt.Errorf("making the tables: %w: %s", err, out)
		}
		return nil
	})
}

// address returns the latest address at which the process listens.
func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// start starts the process, and waits for its first line. Nodes may not accept it at once:
// then it is started again.
func (p *process) start(ctx context.Context) error {
	if err := faultclock.Set(p.clock, p.ahead); err != nil {
		return err
	}
	return poll(ctx, func() error {
		if err := p.startOnce(); err != nil {
			return errors.Join(fmt.Errorf("starting process %d (see %s): %w", p.number, p.log, err), p.kill())
		}
		return nil
	})
}

func (p *process) startOnce() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(os.Environ(), faultclock.Variable+"="+p.clock)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must reach only this process
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout = in
	err = p.run(cmd)
	_ = in.Close() // the process has its own
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no first line: %w", err)
	}
	if err := p.connectWire(before); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return nil
}

var peerLine = regexp.MustCompile(`msg="listening for peers" address=(\S+)`)

// connectWire points the wire at the address for peers that the process has logged since its start.
func (p *process) connectWire(since int64) error {
	if p.wire == nil {
		return nil
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	line := peerLine.FindSubmatch(text[since:])
	if line == nil {
		return errors.New("it did not log its address for peers")
	}
	p.wire.leadTo(string(line[1]))
	return nil
}

// run starts cmd, and a watchdog that kills it when this process ends.
func (p *process) run(cmd *exec.Cmd) (err error) {
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(p.ended)
	}()
	p.dog, err = watchdog.Over(cmd.Process.Pid)
	return err
}

// pause freezes the process, and resume continues it.
func (p *process) pause() error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends the process at once, if it has not ended.
func (p *process) kill() error { return p.end(syscall.SIGKILL) }

// terminate shuts the process down.
func (p *process) terminate() error { return p.end(syscall.SIGTERM) }

// stopLimit is how long a process may take to shut down.
const stopLimit = 20 * time.Second

func (p *process) end(signal syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	var err error
	select {
	case <-p.ended:
	case <-late.C:
		err = errors.Join(fmt.Errorf("process %d did not end within %v", p.number, stopLimit), p.cmd.Process.Kill())
		<-p.ended
	}
	p.cmd = nil
	return errors.Join(err, p.dog.StandDown())
}
