package ask_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// A receipt is refunded once, whether it is an argument or on standard input, and a
// reservation is settled.
func TestRefund(t *testing.T) {
	s := clitest.Start(t, nil, "--policies", clitest.Write(t, "p.yaml", askedPolicies))
	asked := func(stdin string, args ...string) (code int, stdout, stderr string) {
		return clitest.ExecuteWith(t, strings.NewReader(stdin), []string{"RATELIMITD_SERVER=" + s.URL}, args...)
	}
	tokenOf := func(name string, args ...string) string {
		code, stdout, stderr := asked("", append(args, "-o", "json")...)
		var d map[string]any
		if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != command.ExitOK {
			t.Fatalf("%v: exit code %d, %v, errors %q", args, code, err, stderr)
		}
		token, _ := d[name].(string)
		return token
	}
	receipt := tokenOf("receipt", "take", "sms-send", somebody, "--cost=2")
	const again = "not refunded: There is nothing to refund: the receipt is not one of this service, was refunded" +
		" or confirmed before, or its window is over; or the reservation was settled or is over.\n"
	for i, want := range []string{"refunded\n", again} {
		if code, stdout, stderr := asked("", "refund", "--", receipt); code != i || stdout != want || stderr != "" {
			t.Errorf("refund %d: exit code %d, output %q, errors %q", i+1, code, stdout, stderr)
		}
	}
	receipt = tokenOf("receipt", "record", "sms-send", somebody)
	if code, stdout, _ := asked(receipt+"\n", "refund", "-"); code != command.ExitOK || stdout != "refunded\n" {
		t.Errorf("refund from standard input: exit code %d, output %q", code, stdout)
	}
	if code, _, stderr := asked("", "refund", "-"); code != command.ExitError ||
		!strings.Contains(stderr, "there is no receipt on standard input") {
		t.Errorf("refund of nothing: exit code %d, errors %q", code, stderr)
	}
	if code, _, stderr := asked("", "refund", "a\xff"); code != command.ExitError || !strings.Contains(stderr, "that is not a RECEIPT") {
		t.Errorf("refund of bytes: exit code %d, errors %q", code, stderr)
	}
	held := tokenOf("reservation", "check", "sms-send", somebody, "--cost=2", "--reserve=1m")
	if code, _, _ := asked("", "take", "sms-send", somebody); code != command.ExitNo {
		t.Errorf("take beside a hold: exit code %d", code)
	}
	settled := tokenOf("receipt", "record", "sms-send", somebody, "--cost=2", "--reservation", held)
	if code, stdout, _ := asked("", "refund", "--", settled); code != command.ExitOK {
		t.Errorf("refund of what was settled: exit code %d, output %q", code, stdout)
	}
	if code, stdout, _ := asked("", "check", "sms-send", somebody); code != command.ExitOK || !strings.Contains(stdout, "2 of 2 remaining") {
		t.Errorf("check after all: exit code %d, output %q", code, stdout)
	}
	held = tokenOf("reservation", "check", "sms-send", somebody, "--cost=2", "--reserve=1m")
	const less = "settled: 1, of which the reservation did not hold 0\n"
	if code, stdout, _ := asked("", "record", "sms-send", somebody, "--cost=1", "--reservation", held); code != command.ExitOK ||
		!strings.Contains(stdout, "1 of 2 remaining") || !strings.Contains(stdout, less) {
		t.Errorf("settled at less: exit code %d, output %q", code, stdout)
	}
	released := tokenOf("reservation", "check", "sms-send", somebody, "--reserve=1m")
	if code, stdout, _ := asked("", "refund", "--", released); code != command.ExitOK || stdout != "refunded\n" {
		t.Errorf("released: exit code %d, output %q", code, stdout)
	}
	if code, stdout, _ := asked("", "check", "sms-send", somebody); code != command.ExitOK || !strings.Contains(stdout, "1 of 2 remaining") {
		t.Errorf("check after a release: exit code %d, output %q", code, stdout)
	}
	for _, private := range []string{somebody, receipt, held, settled, released} {
		if strings.Contains(s.Log.String(), private) {
			t.Errorf("%q is in the log:\n%s", private, s.Log)
		}
	}
}
