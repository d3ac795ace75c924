//go:build linux && !race

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// tcp is a TCP connection whose reads and writes are made here. The connection below waits
// until the socket is ready, or a deadline or its end have come.
type tcp struct {
	net.Conn // no more than that: the file of a socket would have it block
	below    *net.TCPConn
	raw      syscall.RawConn
	in       reader
	out      writer
}

var _ BothWriter = (*tcp)(nil)

func quick(conn *net.TCPConn) net.Conn {
	raw, err := conn.SyscallConn()
	if err != nil {
		return conn
	}
	c := &tcp{Conn: conn, below: conn, raw: raw}
	c.in.attempt, c.out.attempt = c.in.read, c.out.write
	return c
}

// Read reads what has come, and waits for it if nothing has.
func (c *tcp) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, failed, err := c.in.run(p, c.raw.Read)
	if err = c.errorOf("read", failed, err); err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Write writes all of p.
func (c *tcp) Write(p []byte) (int, error) {
	n, failed, err := c.out.run(p, nil, c.raw.Write)
	return n, c.errorOf("write", failed, err)
}

// CloseWrite ends what is sent, and leaves open what is received.
func (c *tcp) CloseWrite() error { return c.below.CloseWrite() }

// WriteBoth writes all of first and then of second.
func (c *tcp) WriteBoth(first, second []byte) (int, error) {
	n, failed, err := c.out.run(first, second, c.raw.Write)
	return n, c.errorOf("writev", failed, err)
}

// errorOf returns the error of op, as package net words it: failed is what failed by itself, err
// what did while waiting.
func (c *tcp) errorOf(op string, failed, err error) error {
	if failed != nil {
		err = os.NewSyscallError(op, failed)
	} else if of, ok := errors.AsType[*net.OpError](err); ok {
		err = of.Err
	}
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// reader reads for one caller at a time.
type reader struct {
	mu      sync.Mutex
	into    []byte
	n       int
	failed  error                 // nil: it did not
	attempt func(fd uintptr) bool // read, made once
}

func (r *reader) run(p []byte, wait func(attempt func(fd uintptr) bool) error) (n int, failed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.into, r.n, r.failed = p, 0, nil
	err = wait(r.attempt)
	r.into = nil
	return r.n, r.failed, err
}

// read reports whether something was read, or nothing ever will be.
func (r *reader) read(fd uintptr) bool {
	p := unsafe.Pointer(unsafe.SliceData(r.into))
	n, errno := try(syscall.SYS_READ, fd, p, len(r.into))
	r.n = n
	if errno != 0 && errno != syscall.EAGAIN {
		r.failed = errno
	}
	return errno != syscall.EAGAIN
}

// writer writes for one caller at a time.
type writer struct {
	mu      sync.Mutex
	rest    [2][]byte // to be written
	vector  [2]syscall.Iovec
	n       int
	failed  error                 // nil: it did not
	attempt func(fd uintptr) bool // write, made once
}

func (w *writer) run(p, q []byte, wait func(attempt func(fd uintptr) bool) error) (n int, failed, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest, w.n, w.failed = [2][]byte{p, q}, 0, nil
	err = wait(w.attempt)
	w.rest, w.vector = [2][]byte{}, [2]syscall.Iovec{}
	return w.n, w.failed, err
}

// write reports whether all was written, or nothing more ever will be.
func (w *writer) write(fd uintptr) bool {
	for len(w.rest[0])+len(w.rest[1]) > 0 {
		n, errno := w.some(fd)
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			w.failed = errno
			return true
		case n == 0:
			w.failed = io.ErrUnexpectedEOF // as package net has it
			return true
		}
		w.n += n
		for i := range w.rest {
			written := min(n, len(w.rest[i]))
			w.rest[i], n = w.rest[i][written:], n-written
		}
	}
	return true
}

// some writes some of the rest.
func (w *writer) some(fd uintptr) (n int, errno syscall.Errno) {
	if len(w.rest[1]) == 0 {
		return try(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(w.rest[0])), len(w.rest[0]))
	}
	for i, part := range w.rest {
		w.vector[i].Base = unsafe.SliceData(part)
		w.vector[i].SetLen(len(part))
	}
	return try(syscall.SYS_WRITEV, fd, unsafe.Pointer(&w.vector), len(w.vector))
}

// try makes a system call on fd, again where a signal came between.
func try(call, fd uintptr, p unsafe.Pointer, length int) (n int, errno syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(p), uintptr(length))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
