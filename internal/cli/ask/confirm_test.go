package ask_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// A receipt is confirmed once, and says so each time; one that no limit goes by, or that was refunded, says that.
func TestConfirm(t *testing.T) {
	s := clitest.Start(t, nil, "--policies", clitest.Write(t, "p.yaml", askedPolicies+`
  - name: sms-prefix
    limits:
      - {name: conversion, algorithm: conversion, window: 1h, min_conversion: 20%, after: 2, probe: 1/1m}
`))
	asked := func(args ...string) (code int, stdout, stderr string) {
		return clitest.ExecuteWith(t, strings.NewReader(""), []string{"RATELIMITD_SERVER=" + s.URL}, args...)
	}
	take := func(policy string) string {
		code, stdout, stderr := asked("take", policy, "+49151", "-o", "json")
		var d struct{ Receipt string }
		if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != command.ExitOK {
			t.Fatalf("take: exit code %d, %v, errors %q", code, err, stderr)
		}
		return d.Receipt
	}
	receipt, refunded := take("sms-prefix"), take("sms-prefix")
	if code, _, _ := asked("take", "sms-prefix", "+49151"); code != command.ExitNo {
		t.Errorf("a third while none of two is confirmed: exit code %d", code)
	}
	for _, want := range []string{"confirmed\n", "confirmed before\n"} {
		if code, stdout, stderr := asked("confirm", receipt); code != command.ExitOK || stdout != want || stderr != "" {
			t.Errorf("exit code %d, output %q, errors %q, want %q", code, stdout, stderr, want)
		}
	}
	if code, stdout, _ := asked("take", "sms-prefix", "+49151"); code != command.ExitOK {
		t.Errorf("a third when one of two is confirmed: exit code %d, output %q", code, stdout)
	}
	asked("refund", refunded)
	const refused = "not confirmed: Nothing is confirmed by this receipt: it was refunded.\n"
	if code, stdout, stderr := asked("confirm", refunded); code != command.ExitNo || stdout != refused || stderr != "" {
		t.Errorf("of what was refunded: exit code %d, output %q, errors %q", code, stdout, stderr)
	}
	const nothing = "nothing changes: no limit of its policies depends on confirmations\n"
	if code, stdout, _ := asked("confirm", take("sms-send")); code != command.ExitOK || stdout != nothing {
		t.Errorf("where no limit goes by it: exit code %d, output %q", code, stdout)
	}
	if code, _, stderr := asked("confirm", "a\xff"); code != command.ExitError || !strings.Contains(stderr, "that is not a RECEIPT") {
		t.Errorf("of bytes: exit code %d, errors %q", code, stderr)
	}
	if strings.Contains(s.Log.String(), receipt) {
		t.Errorf("the receipt is in the log:\n%s", s.Log)
	}
}
