package localcassandra

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	readyTimeout = 3 * time.Minute // a start takes 10 s on two idle cores; tests at the same time may slow it tenfold
	stopTimeout  = time.Minute     // a drain flushes the writes of tests, which are few
	dialTimeout  = 5 * time.Second
	logTailBytes = 4 << 10
)

// A Node is one Java process that is a Cassandra node, with its files in a folder of its own. Its methods are for one
// goroutine at a time.
type Node struct {
	address string
	port    string // of CQL
	dir     string
	command []string // that runs it: java and its arguments
	process *process // nil while it is not running
}

// Addr returns the node's CQL address, host:port. It stays the same across restarts.
func (n *Node) Addr() string { return net.JoinHostPort(n.address, n.port) }

// Start starts the node, for the first time or on its earlier data, and returns when it accepts CQL. A node that
// already runs is left alone.
func (n *Node) Start(ctx context.Context) error {
	if n.process != nil {
		return nil
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of node %s: %w", n.address, err)
	}
	defer log.Close()
	cmd := exec.Command(n.command[0], n.command[1:]...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	if n.process, err = startProcess(cmd, n.dir); err != nil {
		return fmt.Errorf("starting node %s: %w", n.address, err)
	}
	if err := n.waitReady(ctx); err != nil {
		_ = n.Kill() // the reason of the failed start matters more than a failed kill
		return fmt.Errorf("node %s did not start: %w\nthe end of its log:\n%s", n.address, err, n.LogTail())
	}
	return nil
}

// waitReady returns when the node answers a query, or with an error as soon as its process has ended.
func (n *Node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer within %v", readyTimeout))
	defer cancel()
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	exited := n.process.exited
	stopWatching := make(chan struct{})
	defer close(stopWatching)
	go func() {
		select {
		case <-exited:
			ended(fmt.Errorf("its process ended"))
		case <-stopWatching:
		}
	}()
	return poll(ctx, func() error { return answers(ctx, n.Addr()) })
}

// answers queries the node, after a cheap check of whether its port is open at all.
func answers(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	session, err := sessionTo(addr)
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query(`SELECT now() FROM system.local`).WithContext(ctx).Iter().Close()
}

// Pause freezes the node like a long garbage collection: its connections stay open, but it does not answer.
func (n *Node) Pause() error { return n.signal("pausing", (*process).pause) }

// Resume continues a paused node.
func (n *Node) Resume() error { return n.signal("resuming", (*process).resume) }

func (n *Node) signal(doing string, send func(*process) error) error {
	if n.process == nil {
		return fmt.Errorf("%s node %s: it is not running", doing, n.address)
	}
	if err := send(n.process); err != nil {
		return fmt.Errorf("%s node %s: %w", doing, n.address, err)
	}
	return nil
}

// Kill ends the node at once, paused or not, like a power cut, and returns when it is gone. A node that
// does not run is left alone.
func (n *Node) Kill() error { return n.end("killing", (*process).kill) }

// Stop ends the node cleanly, and returns when it is gone. After a minute it kills the node, and returns an error. A
// paused node must be resumed first. A node that does not run is left alone.
func (n *Node) Stop() error { return n.end("stopping", (*process).terminate) }

func (n *Node) end(doing string, end func(*process) error) error {
	if n.process == nil {
		return nil
	}
	ending := n.process
	n.process = nil
	if err := end(ending); err != nil {
		return fmt.Errorf("%s node %s: %w\nthe end of its log:\n%s", doing, n.address, err, n.LogTail())
	}
	return nil
}

// LogTail returns the last few KiB of the node's log, or the error if there is none.
func (n *Node) LogTail() string {
	log, err := os.Open(n.logPath())
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > logTailBytes {
		if _, err := log.Seek(-logTailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	tail, err := io.ReadAll(log)
	if err != nil {
		return err.Error()
	}
	return string(tail)
}

func (n *Node) logPath() string { return filepath.Join(n.dir, "cassandra.log") }
