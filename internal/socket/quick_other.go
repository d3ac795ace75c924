//go:build !linux || race

package socket

import "net"

func quick(conn *net.TCPConn) net.Conn { return conn }
