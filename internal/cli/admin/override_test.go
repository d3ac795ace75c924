package admin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// TestOverridesFromTheCommandLine sets, looks at and ends overrides, and has it explained.
func TestOverridesFromTheCommandLine(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.json")
	s := clitest.Start(t, nil, "--audit-log="+audit)
	const number = "+4915112345678"
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"override get sms-send " + number, command.ExitNo, "no override"},
		{"override set sms-send " + number + " --block --for 1h", command.ExitOK, "block"},
		{"take sms-send " + number, command.ExitNo, "denied"},
		{"explain sms-send " + number, command.ExitOK, "denied: An override blocks it"},
		{"override set sms-send " + number + " --limit sliding-log-1h=1 --for 7d", command.ExitOK, "sliding-log-1h=1"},
		{"take sms-send " + number, command.ExitOK, "0 of 1 remaining"},
		{"explain sms-send " + number, command.ExitOK, "1 (policy: 10)"},
		{"explain sms-send " + number + " -o json", command.ExitOK, `"because": "limit"`},
		{"override get sms-send " + number, command.ExitOK, "sliding-log-1h=1"},
		{"override list", command.ExitOK, "sms-send   sliding-log-1h=1"},
		{"override set sms-send --prefix +4917 --allow --for ever", command.ExitOK, "+4917…   sms-send   allow      never"},
		{"override get sms-send +4917012345678", command.ExitOK, "+4917…"},
		{"take sms-send +4917012345678", command.ExitOK, "by an override (allow)"},
		{"explain sms-send +4917012345678", command.ExitOK, "override: allow for +4917…, without end"},
		{"override get sms-send --prefix +49", command.ExitNo, "no override"},
		{"override set sms-send --prefix +49 " + number + " --allow --for 1h", command.ExitError, "POLICY alone"},
		{"override set sms-send --prefix= --allow --for 1h", command.ExitError, "--prefix: give"},
		{"override delete sms-send --prefix +4917", command.ExitOK, "deleted"},
		{"override list -o json", command.ExitOK, `"total": 1`},
		{"override delete sms-send " + number, command.ExitOK, "deleted"},
		{"override list -o json", command.ExitOK, `"total": 0`},
		{"reset sms-send " + number, command.ExitOK, "reset"},
		{"explain sms-send " + number, command.ExitOK, "are forgotten"},
		{"override set sms-send " + number + " --for 1h", command.ExitError, "give one of --allow, --block and --limit"},
		{"override set sms-send " + number + " --allow --block --for 1h", command.ExitError, "give one of"},
		{"override set sms-send " + number + " --allow", command.ExitError, "give --for"},
		{"override set sms-send " + number + " --allow --for 32d", command.ExitError, "from 1s to 31d"},
		{"override set sms-send " + number + " --allow --for never", command.ExitError, "or ever"},
		{"override set sms-send " + number + " --block --for ever", command.ExitOK, "block      never"},
		{"explain sms-send " + number, command.ExitOK, "override: block, without end, by anonymous"},
		{"take sms-send " + number, command.ExitNo, "denied"},
		{"override set sms-send " + number + " --limit x --for 1h", command.ExitError, "write NAME=UNITS"},
		{"override set sms-send " + number + " --limit x=1 --for 1h", command.ExitError, "limits[0].name"},
		{"override set sms-sent " + number + " --allow --for 1h", command.ExitError, "did you mean sms-send?"},
		{"explain sms-sent " + number, command.ExitError, "did you mean sms-send?"},
	} {
		code, stdout, stderr := clitest.Execute(t, nil, append(strings.Fields(c.args), "--server", s.URL)...)
		if said := stdout + stderr; code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, number) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", c.args, code, c.code, c.says, said)
		}
	}
	written, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	acts := map[string]int{}
	for line := range strings.Lines(string(written)) {
		var read struct{ Act, Who, Outcome string }
		if err := json.Unmarshal([]byte(line), &read); err != nil || read.Who != "anonymous" {
			t.Errorf("%s: %v", line, err)
		}
		acts[read.Act+" "+read.Outcome]++
	}
	for act, times := range map[string]int{
		"override.set done": 4, "override.set failed": 2, "override.delete done": 2, "reset done": 1, "explain done": 6, "explain failed": 1,
	} {
		if acts[act] != times {
			t.Errorf("%s is %d times in the audit log, want %d:\n%s", act, acts[act], times, written)
		}
	}
	if strings.Contains(string(written), number[1:]) {
		t.Errorf("the number is in the audit log:\n%s", written)
	}
}

// TestOverridesOutliveTheProcess starts another server on the same folder.
func TestOverridesOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	ask := func(s *clitest.Server, code int, args string) {
		t.Helper()
		if got, stdout, stderr := clitest.Execute(t, nil, append(strings.Fields(args), "--server", s.URL)...); got != code {
			t.Errorf("%s: exit code %d, want %d: %s%s", args, got, code, stdout, stderr)
		}
	}
	first := clitest.Start(t, nil, "--data-dir="+folder)
	ask(first, command.ExitOK, "override set login a --block --for 1h")
	ask(first, command.ExitOK, "override set login b --block --for 1h")
	ask(first, command.ExitOK, "override set login c --block --for ever")
	ask(first, command.ExitOK, "override delete login b")
	first.Stop()
	first.Wait(t)
	second := clitest.Start(t, nil, "--data-dir="+folder)
	ask(second, command.ExitNo, "take login a")
	ask(second, command.ExitOK, "take login b")
	ask(second, command.ExitNo, "take login c")
	ask(second, command.ExitOK, "override set login a --allow --for 1h")
	ask(second, command.ExitOK, "take login a")
}
