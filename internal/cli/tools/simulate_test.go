package tools_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const (
	triedPolicies = "policies: [{name: login, limits: [{name: per-minute, algorithm: sliding-log, limit: 2, window: 1m}]}]\n"
	oldPolicies   = "policies: [{name: login, limits: [{name: per-minute, algorithm: sliding-log, limit: 3, window: 1m}]}]\n"
)

// accessLog is four logins of one address, of which two are a second out of order, and one of
// another, beside what nobody asked for and what can't be read.
const accessLog = `192.0.2.7 - - [10/Oct/2026:13:55:00 +0000] "POST /login HTTP/1.1" 200 1 "-" "a"
192.0.2.7 - - [10/Oct/2026:13:55:03 +0000] "POST /login?a=b HTTP/1.1" 200 1 "-" "a"
192.0.2.7 - - [10/Oct/2026:13:55:02 +0000] "POST /login HTTP/1.1" 200 1 "-" "a"
192.0.2.7 - - [10/Oct/2026:13:55:04 +0000] "GET /login HTTP/1.1" 200 1 "-" "a"
192.0.2.8 - - [10/Oct/2026:13:55:05 +0000] "POST /login HTTP/1.1" 200 1 "-" "a"
192.0.2.9 came by, and nobody knows why
192.0.2.7 - - [10/Oct/2026:13:55:06 +0000] "POST /login HTTP/1.1" 200 1 "-" "a"
- - - [10/Oct/2026:13:55:07 +0000] "POST /login HTTP/1.1" 200 1 "-" "a"
`

var shownHash = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// simulateArgs writes the files of a simulation, and returns its command line, and the folder
// where its page goes.
func simulateArgs(t *testing.T) (args []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"new.yaml": triedPolicies, "old.yaml": oldPolicies, "access.log": accessLog} {
		clitest.Rewrite(t, filepath.Join(dir, name), text)
	}
	return []string{
		"simulate", "--policies", filepath.Join(dir, "new.yaml"), "--against", filepath.Join(dir, "old.yaml"),
		"--where", "method=POST", "--where", "path=/login", filepath.Join(dir, "access.log"),
	}, dir
}

// TestSimulate prints what is found as text, as JSON and as a page, and no identifier unless it is
// asked for.
func TestSimulate(t *testing.T) {
	args, dir := simulateArgs(t)
	page := filepath.Join(dir, "page.html")
	code, text, stderr := clitest.Execute(t, nil, append(args, "--html", page)...)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("exit code %d, errors %q", code, stderr)
	}
	clitest.Golden(t, "simulate.golden", shownHash.ReplaceAllString(strings.ReplaceAll(text, dir, "DIR"), "KEY"))
	_, asJSON, _ := clitest.Execute(t, nil, append(args, "--json")...)
	var found struct {
		Decided  int
		Policies []struct {
			Requests, Denied, Callers int
			Against                   struct{ Denied int }
		}
	}
	if err := json.Unmarshal([]byte(asJSON), &found); err != nil || fmt.Sprint(found) != "{5 [{5 2 2 {1}}]}" {
		t.Errorf("%v, %v in %s", err, found, asJSON)
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	html := string(written)
	for name, shown := range map[string]string{"the text": text, "the JSON": asJSON, "the page": html} {
		if strings.Contains(shown, "192.0.2.") {
			t.Errorf("%s has an identifier: %s", name, shown)
		}
	}
	if strings.Count(html, "<svg") != 5 || regexp.MustCompile(`src=|href=|url\(|<script|@import`).MatchString(html) {
		t.Errorf("the page lacks plots, or loads something: %s", html)
	}
	_, text, _ = clitest.Execute(t, nil, append(args, "--show-identifiers")...)
	if !strings.Contains(text, "192.0.2.7") || !strings.Contains(text, "192.0.2.9 came by") {
		t.Errorf("no identifiers: %s", text)
	}
}

// TestSimulateReadsStandardInput as any other log.
func TestSimulateReadsStandardInput(t *testing.T) {
	policies := clitest.Write(t, "policies.yaml", triedPolicies)
	code, text, stderr := clitest.ExecuteWith(t, strings.NewReader(accessLog), nil, "simulate", "--policies", policies, "-")
	if code != command.ExitOK || !strings.Contains(text, "7 lines") || !strings.Contains(text, "standard input, line 6:") {
		t.Errorf("exit code %d, errors %q, output %s", code, stderr, text)
	}
}

// TestSimulateCalledWrongly says which flag, file or line is wrong.
func TestSimulateCalledWrongly(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		clitest.Rewrite(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	policies, log := file("p.yaml", triedPolicies), file("a.log", accessLog)
	two := file("two.yaml", "policies:\n- {name: a, limits: [{algorithm: sliding-log, limit: 2, window: 1m}]}\n"+
		"- {name: b, limits: [{algorithm: sliding-log, limit: 2, window: 1m}]}\n")
	tried, both := "--policies "+policies+" ", "--policies "+two+" "
	for want, args := range map[string]string{
		"give --policies FILE":     log,
		"at least one LOG":         "--policies " + policies,
		"bad.yaml:1:":              "--policies " + file("bad.yaml", "policies: [{name: a}]\n") + " " + log,
		"absent.yaml":              tried + "--against absent.yaml " + log,
		"absent.log: no such file": tried + "absent.log",
		"which policy do lines ask for? give --policy or --policy-field; there are a, b": both + log,
		`--policy: there is no policy "c" in --policies`:                                 both + "--policy c " + log,
		"give --policy or --policy-field, not both":                                      both + "--policy a --policy-field b " + log,
		`"login=" for "--policy" flag: "login=" is neither`:                              tried + "--policy login= " + log,
		`"method" for "--where" flag: "method" is neither`:                               tried + "--where method " + log,
		`"nginx" for "--format" flag: "nginx" is not known`:                              tried + "--format nginx " + log,
		`"-1s" for "--reorder" flag`:                                                     tried + "--reorder -1s " + log,
		`"0" for "--max-callers" flag`:                                                   tried + "--max-callers 0 " + log,
		`a.log, line 1: the format has no field "user_id"`:                               tried + "--identifier user_id " + log,
		"--html: open ": tried + "--html " + dir + " " + log,
		"none of 1 lines can be read: " + dir + "/n.log, line 1: it is not a JSON object": tried + "--format ndjson " + file("n.log", "hello\n"),
		"there is no line in them":                          tried + file("empty.log", "\n"),
		"unknown flag: --polices: did you mean --policies?": "--polices a",
	} {
		code, _, stderr := clitest.Execute(t, nil, append([]string{"simulate"}, strings.Fields(args)...)...)
		if code == command.ExitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, errors %q, want %q", args, code, stderr, want)
		}
	}
}
