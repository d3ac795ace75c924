package serve

import "net"

// notify tells systemd that the service listens, as sd_notify(3) describes: by a datagram to the socket that systemd
// names in the environment of a unit of Type=notify. Without such a socket it does nothing.
func (s *service) notify() {
	socket := s.process.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", socket)
	if err == nil {
		_, err = conn.Write([]byte("READY=1"))
		_ = conn.Close() // nothing waits to be written
	}
	if err != nil {
		s.log.Warn("systemd could not be told that the service is ready, and will end it in time", "error", err)
	}
}
