package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollable reports whether a poller can make the workers' calls, because their connections are HTTP.
func pollable(workers []*worker) bool {
	for _, w := range workers {
		if _, ours := w.caller.(*caller); !ours {
			return false
		}
	}
	return true
}

// poller makes calls over some connections with one thread, like wrk. A goroutine for each connection, and one that paces
// the calls, take a quarter more processor time to wake each other up: at 13,000 calls a second a tenth of a core,
// which the measured service then lacks.
type poller struct {
	*run
	workers     []*worker
	first, step int // numbers of its calls in an open loop: first, first+step, …

	epoll   int
	sockets map[int32]*socket
	idle    []*socket // the one that has been idle for longest is first
	call    int       // in an open loop: how many of its calls were made
}

// socket is a worker's connection, which Go's own poller does not know.
type socket struct {
	*worker
	*caller
	fd    int
	keys  []uint64
	due   time.Time // of the call that waits for its answer
	asked bool
}

// longestWait is how long a poller may take to notice that it must stop.
const longestWait = 100 * time.Millisecond

// work makes calls until the end, and then waits for the last answers. Its thread ends with it.
func (p *poller) work(ctx context.Context) (err error) {
	runtime.LockOSThread() // never unlocked, because the precision of its waits belongs to the thread
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting precise waits: %w", err)
	}
	if err := p.open(); err != nil {
		return errors.Join(err, p.close())
	}
	defer func() { err = errors.Join(err, p.close()) }()
	events := make([]unix.EpollEvent, len(p.workers))
	for ctx.Err() == nil {
		wait, err := p.ask(ctx)
		if err != nil || wait < 0 {
			return err
		}
		if err := p.listen(ctx, events, wait); err != nil {
			return err
		}
	}
	return nil
}

func (p *poller) open() (err error) {
	p.sockets = make(map[int32]*socket)
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	for _, w := range p.workers {
		if err := p.add(&socket{worker: w, keys: make([]uint64, w.Batch)}); err != nil {
			return err
		}
	}
	return nil
}

// add removes s's connection from Go's poller, which would also wake up a thread for each answer.
func (p *poller) add(s *socket) (err error) {
	s.caller = s.worker.caller.(*caller)
	if s.fd, err = descriptor(s.conn); err != nil {
		return err
	}
	p.sockets[int32(s.fd)], p.idle = s, append(p.idle, s)
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.fd, &event))
}

// descriptor returns a descriptor of its own for conn's connection, and closes conn.
func descriptor(conn net.Conn) (fd int, err error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, failed, conn.Close())
}

func (p *poller) close() error {
	errs := []error{unix.Close(p.epoll)}
	for _, s := range p.sockets {
		errs = append(errs, unix.Close(s.fd))
	}
	return errors.Join(errs...)
}

// ask makes the calls that are due and have a connection, and returns how long to wait for an answer:
// a negative time if no answer is due.
func (p *poller) ask(ctx context.Context) (wait time.Duration, err error) {
	for len(p.idle) > 0 {
		due, more := p.next()
		if !more {
			if len(p.idle) == len(p.sockets) {
				return -1, nil
			}
			return longestWait, nil
		}
		if wait := time.Until(due); wait > 0 {
			return min(wait, longestWait), nil
		}
		s := p.idle[0]
		p.idle = p.idle[:copy(p.idle, p.idle[1:])]
		if err := p.send(ctx, s, due); err != nil {
			return 0, err
		}
	}
	return longestWait, nil
}

// next returns when the next call is due, which may be in the past.
func (p *poller) next() (due time.Time, more bool) {
	if p.Rate == 0 {
		now := time.Now()
		return now, now.Before(p.end)
	}
	call := p.first + p.call*p.step
	return p.dueAt(call), call < p.calls()
}

func (p *poller) send(ctx context.Context, s *socket, due time.Time) error {
	p.call++
	for i := range s.keys {
		s.keys[i] = s.next()
	}
	s.tally.add(s.keys)
	s.due, s.asked = due, true
	request := s.asking(s.keys)
	n, err := unix.Write(s.fd, request)
	if err == nil && n < len(request) {
		err = io.ErrShortWrite // a service that has answered all earlier calls has room for it
	}
	if err != nil {
		return p.failed(ctx, s, err)
	}
	return nil
}

// listen waits for answers, and reads them.
func (p *poller) listen(ctx context.Context, events []unix.EpollEvent, wait time.Duration) error {
	until := unix.NsecToTimespec(int64(wait))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(p.epoll), Events: unix.POLLIN}}, &until, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("ppoll", err)
	}
	n, err := unix.EpollWait(p.epoll, events, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("epoll_wait", err)
	}
	for _, event := range events[:max(n, 0)] {
		if err := p.read(ctx, p.sockets[event.Fd]); err != nil {
			return err
		}
	}
	if n > 0 || wait < longestWait {
		return nil
	}
	return p.expire(ctx)
}

// read reads the available part of s's answer.
func (p *poller) read(ctx context.Context, s *socket) error {
	n, err := unix.Read(s.fd, s.free())
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		return p.failed(ctx, s, err)
	case n == 0 || !s.asked:
		return p.failed(ctx, s, io.ErrUnexpectedEOF)
	}
	s.in = s.in[:len(s.in)+n]
	outcome, done, err := s.answer()
	if err != nil {
		return p.failed(ctx, s, err)
	}
	if !done {
		return nil
	}
	s.asked, p.idle = false, append(p.idle, s)
	return s.saw(s.keys, outcome, s.due, time.Since(s.due))
}

// failed notes that s's call, if any, failed, and connects again.
func (p *poller) failed(ctx context.Context, s *socket, why error) error {
	late := time.Since(s.due)
	delete(p.sockets, int32(s.fd))
	p.idle = slices.DeleteFunc(p.idle, func(idle *socket) bool { return idle == s })
	if err := errors.Join(unix.Close(s.fd), s.reopen(ctx, why)); err != nil {
		return err
	}
	if s.asked {
		s.asked = false
		if err := s.saw(s.keys, Outcome{Failed: int64(len(s.keys))}, s.due, late); err != nil {
			return err
		}
	}
	return p.add(s)
}

// expire gives up the calls whose connections have been open for longer than a run may take. It is called if no answer came
// within the longest wait.
func (p *poller) expire(ctx context.Context) error {
	for _, s := range p.sockets {
		if s.asked && time.Now().After(s.expires) {
			return p.failed(ctx, s, os.ErrDeadlineExceeded)
		}
	}
	return nil
}
