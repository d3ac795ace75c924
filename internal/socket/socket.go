// Package socket reads from and writes to TCP connections by system calls that Go's scheduler is
// not told of.
//
// A connection of package net tells it, before each call and after, that a thread may stand still
// in the kernel. These never do, as Go's sockets do not block; but whenever a process that was
// idle makes such a call, the runtime's monitor (sysmon) is woken up and then looks every 20 µs
// whether the thread has come back. For a service that waits for requests most of the time, and
// answers each within microseconds, that costs as much as the answer.
//
// What the runtime does while it is told nothing is what it does for any code that computes: a
// call that takes long, as one that sends much over loopback, is not preempted, and its processor
// not lent to another goroutine meanwhile.
package socket

import "net"

// Conn returns conn with such reads and writes, where it is a TCP connection and the system is
// Linux; conn itself anywhere else, and under the race detector, which learns of what package net
// reads and writes, but would not of these. Everything else is conn's: deadlines, the errors'
// types, and that it may be used by several goroutines at the same time.
func Conn(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	return quick(tcp)
}

// WriteBoth writes first and then second to conn, by one call where conn can: a reader that is
// woken up for the first alone has come for little. It returns how many bytes were written.
func WriteBoth(conn net.Conn, first, second []byte) (int, error) {
	if c, ok := conn.(interface {
		WriteBoth(first, second []byte) (int, error)
	}); ok {
		return c.WriteBoth(first, second)
	}
	n, err := (&net.Buffers{first, second}).WriteTo(conn)
	return int(n), err
}
