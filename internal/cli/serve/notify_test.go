package serve_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestSystemdIsToldWhenItServes listens as systemd does for a unit of Type=notify.
func TestSystemdIsToldWhenItServes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	start(t, []string{"NOTIFY_SOCKET=" + socket})
	if err := systemd.SetReadDeadline(time.Now().Add(clitest.Patience)); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, err := systemd.Read(said)
	if err != nil || string(said[:n]) != "READY=1" {
		t.Errorf("systemd is told %q, %v", said[:n], err)
	}
}

// TestNobodyListensForTheStart has a service serve all the same.
func TestNobodyListensForTheStart(t *testing.T) {
	s := start(t, []string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "none")})
	s.Log.WaitFor(t, "systemd could not be told", 1)
	if got := s.Get(t, "/healthz"); got != 200 {
		t.Errorf("healthz: %d", got)
	}
}
