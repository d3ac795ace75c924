package serve

import "net"

// notify tells systemd that the service listens, as sd_notify(3) has it: in a datagram to the socket that the
// environment names, where a unit is of Type=notify. Else nobody is told.
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
