package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const topPolicies = `policies:
  - name: login
    limits: [{algorithm: sliding-log, limit: 2, window: 1h}, {name: next, algorithm: sliding-log, limit: 1, window: 1h, shadow: true}]
  - {name: tighter, mode: shadow, limits: [{algorithm: fixed-window, limit: 1, window: 1h}]}
`

// TestTop shows a server's decisions.
func TestTop(t *testing.T) {
	s := clitest.Start(t, nil, "--ui", "--policies="+clitest.Write(t, "p.yaml", topPolicies))
	for range 5 {
		s.Take(t, "login")
	}
	for range 3 {
		s.Take(t, "tighter")
	}
	code, stdout, stderr := clitest.Execute(t, nil, "top", "--once", "--server="+s.URL)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range [][]string{
		{"last", "hour", "2", "allowed,", "3", "denied:", "3", "over", "limit"},
		{"POLICY", "MODE", "ALLOW/S", "DENY/S", "ALLOW/H", "DENY/H", "SHARE", "WOULD/H"},
		{"login", "enforce", "", "", "1", "3", "60.0", "%", "1"},
		{"tighter", "shadow", "", "", "1", "0", "0.0", "%", "2"},
		{"SHADOW", "OF", "LIMIT", "CALLS", "WOULD", "DENY", "SHARE", "CALLERS", "LAST", "24", "HOURS"},
		{"tighter", "fixed-window-1h", "3", "2", "66.7", "%", "1", ""},
		{"login", "next", "5", "1", "20.0", "%", "1", ""},
		{"clock", "this", "machine's,", "with", "no", "other", "to", "compare", "with"},
	} {
		if !hasLine(stdout, want) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	code, stdout, _ = clitest.Execute(t, nil, "top", "--once", "-o", "json", "--server="+s.URL)
	var read struct{ Policies []struct{ Denied int } }
	if err := json.Unmarshal([]byte(stdout), &read); err != nil || code != command.ExitOK || read.Policies[0].Denied != 3 {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
	for late := time.Now().Add(clitest.Patience); !hasLine(stdout, []string{"", "login", "3"}); { // once callers are looked through again
		if time.Now().After(late) {
			t.Fatalf("nobody is past a limit:\n%s", stdout)
		}
		_, stdout, _ = clitest.Execute(t, nil, "top", "--once", "--server="+s.URL)
	}
	if !hasLine(stdout, []string{"FURTHEST", "PAST", "A", "LIMIT", "POLICY", "ATTEMPTS"}) {
		t.Errorf("who is past a limit has no heading:\n%s", stdout)
	}
}

// TestTopOfOneInstance narrows to the one that there is, and names those that there are where another one is meant.
func TestTopOfOneInstance(t *testing.T) {
	s := clitest.Start(t, nil, "--ui")
	code, stdout, stderr := clitest.Execute(t, nil, "top", "--once", "-o", "json", "--server="+s.URL)
	var read struct{ Instances []struct{ Instance string } }
	if err := json.Unmarshal([]byte(stdout), &read); err != nil || code != command.ExitOK || len(read.Instances) != 1 {
		t.Fatalf("exit code %d, %v, %s: %s", code, err, stderr, stdout)
	}
	self := read.Instances[0].Instance
	if code, stdout, stderr := clitest.Execute(t, nil, "top", "--once", "--server="+s.URL, "--instance="+self); code != command.ExitOK {
		t.Errorf("exit code %d, %s, output\n%s", code, stderr, stdout)
	}
	code, _, stderr = clitest.Execute(t, nil, "top", "--once", "--server="+s.URL, "--instance=nobody")
	if code != command.ExitError || !strings.Contains(stderr, "instance: It must be the id of one") || !strings.Contains(stderr, self) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// hasLine reports whether a line of text has these words; an empty one is any.
func hasLine(text string, want []string) bool {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		same := len(words) == len(want)
		for i := range words {
			same = same && (want[i] == "" || want[i] == words[i])
		}
		if same {
			return true
		}
	}
	return false
}

// TestTopGoesOn shows frame after frame until it is interrupted.
func TestTopGoesOn(t *testing.T) {
	s := clitest.Start(t, nil, "--ui")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &frames{want: 2, enough: interrupt}
	code := clitest.Run(ctx, []string{"top", "--server=" + s.URL}, nil, strings.NewReader(""), out, out)
	if shown := out.text.String(); code != command.ExitOK || strings.Count(shown, "POLICY") < 2 || strings.Contains(shown, "SHADOW OF") {
		t.Errorf("exit code %d: %s", code, out.text.String())
	}
}

// frames calls enough when it has as many as are wanted.
type frames struct {
	text   bytes.Buffer
	want   int
	enough func()
}

func (f *frames) Write(p []byte) (int, error) {
	n, err := f.text.Write(p)
	if strings.Count(f.text.String(), "POLICY") >= f.want {
		f.enough()
	}
	return n, err
}

// TestTopWithoutAPage gives an error that names the missing flag.
func TestTopWithoutAPage(t *testing.T) {
	s := clitest.Start(t, nil)
	code, _, stderr := clitest.Execute(t, nil, "top", "--server="+s.URL)
	if code != command.ExitError || !strings.Contains(stderr, "start it with --ui") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
