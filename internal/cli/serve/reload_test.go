package serve_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestReloadsAreAudited in the log of a server.
func TestReloadsAreAudited(t *testing.T) {
	path := clitest.Write(t, "policies.yaml", "policies:\n  - {name: p, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\n")
	s := start(t, nil, "--policies="+path)
	clitest.Rewrite(t, path, "policies:\n  - {name: q, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\n")
	s.Log.WaitFor(t, `msg=audit act=policies.reload who=file outcome=done`, 1)
	clitest.Rewrite(t, path, "policies: []\n")
	s.Log.WaitFor(t, `msg=audit act=policies.reload who=file outcome=failed`, 1)
}
