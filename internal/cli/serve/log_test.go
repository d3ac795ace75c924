package serve_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestJSONFromTheFirstLineOn starts commands that fail at once: whatever is wrong, each line on
// standard error is JSON where that was asked for.
func TestJSONFromTheFirstLineOn(t *testing.T) {
	wrong := clitest.Write(t, "policies.yaml", "policies:\n  - name: a\n  - name: b\n")
	configured := clitest.Write(t, "serve.yaml", "log-format: json\nlisten: nowhere\nlisten-to: x\n")
	taken := start(t, nil)
	const inJSON = "--log-format=json"
	for name, c := range map[string]struct {
		args, environ []string
		says          string
	}{
		"a file of policies": {[]string{"serve", inJSON, "--policies", wrong}, nil, `"mistakes":`},
		"a variable":         {[]string{"serve", inJSON, "--data-dir=/dev/null"}, []string{"RATELIMITD_LISTEM=x"}, "is not read"},
		"the environment":    {[]string{"serve", "--policies", wrong}, []string{"RATELIMITD_LOG_FORMAT=json"}, `"mistakes":`},
		"a wrong variable":   {[]string{"serve"}, []string{"RATELIMITD_LOG_FORMAT=json", "RATELIMITD_LISTEN=x"}, "RATELIMITD_LISTEN"},
		"an unknown flag":    {[]string{"serve", inJSON, "--listem=x"}, nil, "listem"},
		"and before it":      {[]string{"serve", "--listem=x", "--log-format", "json"}, nil, "listem"},
		"a wrong value":      {[]string{"serve", "--listen=x", inJSON}, nil, "is not an address"},
		"a configuration":    {[]string{"serve", "--config", configured}, nil, "listen-to"},
		"a port":             {[]string{"serve", inJSON, "--listen", strings.TrimPrefix(taken.URL, "http://")}, nil, "in use"},
		"a missing flag":     {[]string{"proxy", inJSON}, nil, "--upstream"},
		"an argument":        {[]string{"serve", inJSON, "now"}, nil, "now"},
		"no Cassandra":       {[]string{"migrate", inJSON, "--cassandra-hosts=127.0.0.9:1"}, nil, "ERROR"},
	} {
		code, _, stderr := clitest.Execute(t, c.environ, c.args...)
		if code == command.ExitOK || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d:\n%s", name, code, stderr)
		}
		for line := range strings.Lines(stderr) {
			if !isJSON(line) {
				t.Errorf("%s: no JSON: %s", name, line)
			}
		}
	}
	if _, _, stderr := clitest.Execute(t, []string{"RATELIMITD_LOG_FORMAT=json"}, "take", "a", "b", "--server",
		"http://127.0.0.9:1"); isJSON(stderr) {
		t.Errorf("what asks has no log: %s", stderr)
	}
}

func isJSON(line string) bool { return json.Valid([]byte(line)) }
