package tools_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestImportEnvoyFails holds that nothing is printed beside a mistake.
func TestImportEnvoyFails(t *testing.T) {
	wrong := clitest.Write(t, "edge.yaml", "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 1}}]\n")
	for _, args := range [][]string{{wrong}, {wrong + ".absent"}, {}, {wrong, "--count=some"}} {
		code, out, errs := clitest.Execute(t, nil, append([]string{"policies", "import-envoy"}, args...)...)
		if code != command.ExitUsage || out != "" || errs == "" {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}
