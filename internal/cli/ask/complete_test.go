package ask_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestCompletion(t *testing.T) {
	s := clitest.Start(t, nil, "--policies", clitest.Write(t, "p.yaml", askedPolicies))
	environ := []string{"RATELIMITD_SERVER=" + s.URL}
	elsewhere := pretend(t, reply{status: 200, kind: "text/html", body: `{"policies":[{"name":"p"}]}`})
	hostile := pretend(t, reply{status: 200, body: `{"policies":[{"name":"a\u001b[2J","description":"b\tc\nd"}]}`})
	for _, test := range []struct {
		name    string
		environ []string
		line    []string // the last word is being typed
		want    string   // lines; :4 is the shell's word for "no files"
	}{
		{"policies", environ, []string{"take", ""}, "closed\nsms-send\tone-time codes to a phone number\ntrial\ntrial2\nunused\n:4\n"},
		{"a policy begun", environ, []string{"check", "sm"}, "sms-send\tone-time codes to a phone number\n:4\n"},
		{"the server on the line", nil, []string{"reset", "--server", s.URL, "tr"}, "trial\ntrial2\n:4\n"},
		{"no identifiers", environ, []string{"record", "sms-send", ""}, ":4\n"},
		{"formats", nil, []string{"take", "p", "-o", ""}, "table\njson\n:4\n"},
		{"no receipts", environ, []string{"refund", ""}, ":4\n"},
		{"no files for a hold", nil, []string{"check", "--reserve", ""}, ":4\n"},
		{"no files for a reservation", nil, []string{"record", "--reservation", ""}, ":4\n"},
		{"no files for a key", nil, []string{"take", "--idempotency-key", ""}, ":4\n"},
		{"no files for a server", nil, []string{"take", "--server", ""}, ":4\n"},
		{"files for the configuration", nil, []string{"take", "--config", ""}, ":0\n"},
		{"a server that is not there", nil, []string{"take", "--server", "127.0.0.1:1", ""}, ":4\n"},
		{"a server that is another", nil, []string{"take", "--server", elsewhere.URL, ""}, ":4\n"},
		{"a server with bad names", nil, []string{"take", "--server", hostile.URL, ""}, "a\ufffd[2J\tb\ufffdc\ufffdd\n:4\n"},
		{"a wrong setting", []string{"RATELIMITD_OUTPUT=x", environ[0]}, []string{"take", ""}, ":4\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, _ := clitest.Execute(t, test.environ, append([]string{"__complete"}, test.line...)...)
			if code != command.ExitOK || stdout != test.want {
				t.Errorf("exit code %d, output:\n%s\nwant:\n%s", code, stdout, test.want)
			}
		})
	}
}

func TestCompletionWaitsNoLongerThanAPerson(t *testing.T) {
	t.Parallel() // it takes the second that it is about
	began := time.Now()
	code, stdout, _ := clitest.Execute(t, nil, "__complete", "take", "--timeout=1m", "--server", silent(t).URL, "")
	if took := time.Since(began); code != command.ExitOK || stdout != ":4\n" || took > clitest.Patience {
		t.Errorf("exit code %d, output %q after %v", code, stdout, took)
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "# bash completion V2 for ratelimitd", "zsh": "#compdef ratelimitd", "fish": "# fish completion for ratelimitd",
	} {
		if code, stdout, stderr := clitest.Execute(t, nil, "completion", shell); code != command.ExitOK || !strings.HasPrefix(stdout, want) ||
			stderr != "" {
			t.Errorf("%s: exit code %d, errors %q, output begins %.60q; want %q", shell, code, stderr, stdout, want)
		}
	}
}
