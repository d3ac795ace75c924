package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverridesFromTheCommandLine sets, looks at and ends overrides, and has it explained.
func TestOverridesFromTheCommandLine(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.json")
	s := start(t, nil, "--audit-log="+audit)
	const number = "+4915112345678"
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"override get sms-send " + number, exitDenied, "no override"},
		{"override set sms-send " + number + " --block --for 1h", exitOK, "block"},
		{"take sms-send " + number, exitDenied, "denied"},
		{"explain sms-send " + number, exitOK, "denied: An override blocks it"},
		{"override set sms-send " + number + " --limit sliding-log-1h=1 --for 7d", exitOK, "sliding-log-1h=1"},
		{"take sms-send " + number, exitOK, "0 of 1 remaining"},
		{"explain sms-send " + number, exitOK, "1 (policy: 10)"},
		{"explain sms-send " + number + " -o json", exitOK, `"because": "limit"`},
		{"override get sms-send " + number, exitOK, "sliding-log-1h=1"},
		{"override list", exitOK, "sms-send   sliding-log-1h=1"},
		{"override list -o json", exitOK, `"total": 1`},
		{"override delete sms-send " + number, exitOK, "deleted"},
		{"override list -o json", exitOK, `"total": 0`},
		{"reset sms-send " + number, exitOK, "reset"},
		{"explain sms-send " + number, exitOK, "is forgotten"},
		{"override set sms-send " + number + " --for 1h", exitError, "give one of --allow, --block and --limit"},
		{"override set sms-send " + number + " --allow --block --for 1h", exitError, "give one of"},
		{"override set sms-send " + number + " --allow", exitError, "give --for"},
		{"override set sms-send " + number + " --allow --for 32d", exitError, "from 1s to 31d"},
		{"override set sms-send " + number + " --limit x --for 1h", exitError, "write NAME=UNITS"},
		{"override set sms-send " + number + " --limit x=1 --for 1h", exitError, "limits[0].name"},
		{"override set sms-sent " + number + " --allow --for 1h", exitError, "did you mean sms-send?"},
		{"explain sms-sent " + number, exitError, "did you mean sms-send?"},
	} {
		code, stdout, stderr := execute(t, nil, append(strings.Fields(c.args), "--server", s.url)...)
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
		"override.set done": 2, "override.set failed": 2, "override.delete done": 1, "reset done": 1, "explain done": 4, "explain failed": 1,
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
	ask := func(s *server, code int, args string) {
		t.Helper()
		if got, stdout, stderr := execute(t, nil, append(strings.Fields(args), "--server", s.url)...); got != code {
			t.Errorf("%s: exit code %d, want %d: %s%s", args, got, code, stdout, stderr)
		}
	}
	first := start(t, nil, "--data-dir="+folder)
	ask(first, exitOK, "override set login a --block --for 1h")
	ask(first, exitOK, "override set login b --block --for 1h")
	ask(first, exitOK, "override delete login b")
	first.stop()
	first.wait(t)
	second := start(t, nil, "--data-dir="+folder)
	ask(second, exitDenied, "take login a")
	ask(second, exitOK, "take login b")
	ask(second, exitOK, "override set login a --allow --for 1h")
	ask(second, exitOK, "take login a")
}

// TestAuditLogIsOpenedAnew moves the file away, as logrotate does, and has reloads in it.
func TestAuditLogIsOpenedAnew(t *testing.T) {
	folder := t.TempDir()
	path, log := filepath.Join(folder, "audit.json"), slog.New(slog.DiscardHandler)
	audit, err := openAuditLog(path, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	audit.reloaded("policies", nil, nil)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	audit.reloaded("callers", os.ErrNotExist, nil)
	audit.reload()
	audit.reloaded("certificates", nil, nil)
	first, _ := os.ReadFile(path + ".1")
	second, _ := os.ReadFile(path)
	if strings.Count(string(first), "\n") != 2 || !strings.Contains(string(first), `"act":"callers.reload","who":"file","outcome":"failed"`) {
		t.Errorf("in the file that was moved away:\n%s", first)
	}
	if strings.Count(string(second), "\n") != 1 || !strings.Contains(string(second), `"certificates.reload"`) {
		t.Errorf("in the new one:\n%s", second)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := openAuditLog(filepath.Join(folder, "none", "audit.json"), nil, log); err == nil {
		t.Error("a file in a folder that is not there was opened")
	}
}

// TestReloadsAreAudited in the log of a server.
func TestReloadsAreAudited(t *testing.T) {
	path := write(t, "policies.yaml", "policies:\n  - {name: p, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\n")
	s := start(t, nil, "--policies="+path)
	rewrite(t, path, "policies:\n  - {name: q, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\n")
	s.log.waitFor(t, `"act":"policies.reload","who":"file","outcome":"done"`, 1)
	rewrite(t, path, "policies: []\n")
	s.log.waitFor(t, `"act":"policies.reload","who":"file","outcome":"failed"`, 1)
}
