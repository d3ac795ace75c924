// Package socket reads from and writes to TCP connections by system calls that Go's scheduler is
// not told of.
//
// A connection of package net tells it, before each call and after, that a thread may stand still
// in the kernel. These hardly ever do, as Go's sockets do not block; but whenever a process that
// was idle makes such a call, the runtime's monitor (sysmon) is woken up and then looks every
// 20 µs whether the thread has come back. For a service that waits for requests most of the time,
// and answers each within microseconds, that costs a good part of the answer.
//
// What is lost is what the monitor does. A call that takes long, as one that sends much over
// loopback does, keeps its processor, which is not lent to another goroutine meanwhile. And while
// the monitor sleeps, a goroutine that computes for long is not interrupted, nor is the network
// looked at by anybody but who has nothing else to do. It sleeps when all is idle, and wakes up at
// the next timer that is due, at the next call of another kind and when memory is collected: a
// process that uses this should have something to do a few times a second, as any with a ticker
// has.
package socket

import "net"

// Conn returns conn with such reads and writes, where it is a TCP connection and the system is
// Linux; conn itself anywhere else, and under the race detector, which learns of what package net
// reads and writes, but would not of these. Deadlines, the types of errors, CloseWrite, and that
// several goroutines may use it at the same time are as before. What else a net.TCPConn can do, it
// hides.
func Conn(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	return quick(tcp)
}

// BothWriter is a connection that can write two parts by one system call, which net.Buffers does
// only for connections that nothing is wrapped around.
type BothWriter interface {
	// WriteBoth writes all of first and then of second, and returns how many bytes that were.
	WriteBoth(first, second []byte) (int, error)
}

// WriteBoth writes first and then second to conn, by one call where conn is a BothWriter or
// package net's: a reader that is woken up for the first alone has come for little. It returns how
// many bytes were written.
func WriteBoth(conn net.Conn, first, second []byte) (int, error) {
	if c, ok := conn.(BothWriter); ok {
		return c.WriteBoth(first, second)
	}
	n, err := (&net.Buffers{first, second}).WriteTo(conn)
	return int(n), err
}
