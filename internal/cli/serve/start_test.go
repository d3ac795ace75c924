package serve_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// server is a service in this process.
type server struct{ *clitest.Server }

// start runs serve with these flags on a free port.
func start(t testing.TB, environ []string, flags ...string) *server {
	t.Helper()
	return startCommand(t, "serve", environ, flags...)
}

// startCommand is start for a command that serves as serve does.
func startCommand(t testing.TB, command string, environ []string, flags ...string) *server {
	t.Helper()
	return &server{clitest.StartCommand(t, command, environ, flags...)}
}
