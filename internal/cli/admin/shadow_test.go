package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const tightened = `policies:
  - name: login
    limits:
      - {name: per-hour, algorithm: sliding-log, limit: 5, window: 1h}
      - {name: next, algorithm: sliding-log, limit: 3, window: 1h, shadow: true}
  - {name: api, limits: [{algorithm: fixed-window, limit: 1, window: 1h}]}
`

// TestShadowWithoutConfirmations checks the note on a conversion that can't be judged, and then the number of
// confirmations by which it is.
func TestShadowWithoutConfirmations(t *testing.T) {
	s := clitest.Start(t, nil, "--ui", "--policies="+clitest.Write(t, "p.yaml", `policies:
  - {name: codes, mode: shadow, limits: [{algorithm: conversion, unconfirmed: 2, min_conversion: 50%, window: 1h}]}
`))
	shown := func() string {
		t.Helper()
		code, stdout, stderr := clitest.Execute(t, nil, "shadow", "codes", "--server="+s.URL)
		if code != command.ExitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		return stdout
	}
	if text := shown(); strings.Contains(text, "judged") {
		t.Errorf("before any call: %s", text)
	}
	var receipt string
	for range 2 {
		_, stdout, _ := clitest.Execute(t, nil, "take", "codes", "DE", "-o", "json", "--server="+s.URL)
		var took struct{ Receipt string }
		if err := json.Unmarshal([]byte(stdout), &took); err != nil {
			t.Fatal(err)
		}
		receipt = took.Receipt
	}
	const unjudged = "not judged: no units were confirmed, and limits of codes depend on confirmations, by POST /v1/confirm\n"
	if text := shown(); !strings.Contains(text, unjudged) {
		t.Error(text)
	}
	if _, frame, _ := clitest.Execute(t, nil, "top", "--once", "--server="+s.URL); !strings.Contains(frame, unjudged) {
		t.Error(frame)
	}
	if code, _, stderr := clitest.Execute(t, nil, "confirm", receipt, "--server="+s.URL); code != command.ExitOK {
		t.Fatal(stderr)
	}
	if text := shown(); !strings.Contains(text, "judged by 1 unit confirmed for codes\n") {
		t.Error(text)
	}
}

// TestShadow prints what shadows would have denied, that there are none, and whose calls are missing.
func TestShadow(t *testing.T) {
	s := clitest.Start(t, nil, "--policies="+clitest.Write(t, "p.yaml", tightened))
	for range 6 {
		s.Take(t, "login")
	}
	code, stdout, stderr := clitest.Execute(t, nil, "shadow", "login", "--server="+s.URL)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.Contains(stdout, "6 calls of login since 20") ||
		!strings.Contains(stdout, "on 1 instance: 1 denied, 2 allowed and would be denied\n") {
		t.Error(stdout)
	}
	for _, want := range [][]string{{"next", "3", "all", "6", "2", "1"}, {"", "6", "2", "1"}} {
		if !hasLine(stdout, want) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	code, stdout, _ = clitest.Execute(t, nil, "shadow", "login", "-o", "json", "--server="+s.URL)
	var read struct {
		Scope      string
		Callers    int
		Unanswered []any
	}
	if err := json.Unmarshal([]byte(stdout), &read); err != nil || code != command.ExitOK || read.Scope != "instance" || read.Callers != 1 ||
		len(read.Unanswered) > 0 {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
	if _, stdout, _ = clitest.Execute(t, nil, "shadow", "api", "--server="+s.URL); stdout != "nothing of api is in shadow\n" {
		t.Error(stdout)
	}
	code, _, stderr = clitest.Execute(t, nil, "shadow", "none", "--server="+s.URL)
	if code != command.ExitError || !strings.Contains(stderr, "No policy of that name") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	_, stdout, _ = clitest.Execute(t, nil, "take", "login", "somebody", "--server="+s.URL)
	if !hasLine(stdout, []string{"next", "(shadow)", "sliding-log", "3", "1", "2", "1h", "-"}) {
		t.Error(stdout)
	}
}
