package ask_test

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// somebody is an identifier that nothing but a body may hold.
const somebody = "+4915112345678"

const askedPolicies = `policies:
  - name: sms-send
    description: one-time codes to a phone number
    limits:
      - {name: per-hour, algorithm: sliding-log, limit: 2, window: 1h}
      - {name: per-day, algorithm: sliding-log, limit: 30, window: 24h}
  - {name: trial, limits: [{name: per-minute, algorithm: sliding-log, limit: 1, window: 1m}], mode: shadow}
  - {name: unused, limits: [{name: per-minute, algorithm: sliding-log, limit: 1, window: 1m}], mode: off}
  - {name: trial2, limits: [{name: per-hour, algorithm: sliding-log, limit: 5, window: 1h}]}
  - {name: closed, limits: [{name: none, algorithm: fixed-window, limit: 0, window: 1s}]}
`

// masked replaces the times of an answer, which vary, and the width of columns,
// which varies with them.
func masked(output string) string {
	for _, m := range []struct{ pattern, with string }{
		{`("(?:reset|retry)_after_ms": )[1-9]\d*`, "${1}TIME"},
		{`("?(?:receipt|reservation)"?: "?)[\w-]{40,}`, "${1}TOKEN"},
		{`before \d+ ms`, "before TIME ms"},
		{`\b(?:\d+(?:d|h|ms|m|s))+\b`, "TIME"},
		{`(\S) {3,}`, "$1 | "},
	} {
		output = regexp.MustCompile(m.pattern).ReplaceAllString(output, m.with)
	}
	return output
}

// A whole story through the front door: every command, in table and JSON, with
// its exit code.
func TestAsk(t *testing.T) {
	s := clitest.Start(t, nil, "--policies", clitest.Write(t, "p.yaml", askedPolicies))
	environ := []string{"RATELIMITD_SERVER=" + s.URL}
	var story strings.Builder
	for _, line := range []string{
		"check sms-send ID",
		"take sms-send ID",
		"take sms-send ID --output=json",
		"check sms-send ID",
		"take sms-send ID -o json",
		"record sms-send ID --cost 3",
		"take sms-send another",
		"reset sms-send ID",
		"check sms-send ID",
		"take trial ID",
		"take trial ID",
		"take unused ID",
		"record unused ID",
		"take closed ID",
		"take trial2 ID --idempotency-key=k1",
		"take trial2 ID --idempotency-key=k1",
		"record trial2 ID --idempotency-key=k2 --cost 2",
		"check trial2 ID --reserve=30s",
	} {
		code, stdout, stderr := clitest.Execute(t, environ, strings.Fields(strings.ReplaceAll(line, "ID", somebody))...)
		if stderr != "" {
			t.Errorf("%s: on standard error: %s", line, stderr)
		}
		fmt.Fprintf(&story, "$ ratelimitd %s\n%s=> %d\n\n", line, masked(stdout), code)
	}
	clitest.Golden(t, "ask.golden", story.String())
	if strings.Contains(s.Log.String()+story.String(), somebody) {
		t.Errorf("the identifier is in the log or in what is printed:\n%s\n%s", s.Log, &story)
	}
}

func TestAskReadsTheIdentifierFromStandardInput(t *testing.T) {
	s := clitest.Start(t, nil, "--policies", clitest.Write(t, "p.yaml", askedPolicies))
	asked := func(stdin string, args ...string) (code int, stdout, stderr string) {
		return clitest.ExecuteWith(t, strings.NewReader(stdin), nil, append(args, "--server", s.URL)...)
	}
	for i, stdin := range []string{somebody, somebody + "\n", somebody + "\r\n"} { // all are the same one, whose limit is 2
		if code, _, stderr := asked(stdin, "take", "sms-send", "-"); code != min(i/2, command.ExitNo) || stderr != "" {
			t.Errorf("take %d: exit code %d, errors %q", i+1, code, stderr)
		}
	}
	if code, _, _ := asked("", "check", "sms-send", somebody); code != command.ExitNo {
		t.Errorf("check of the same identifier as an argument: exit code %d, want %d", code, command.ExitNo)
	}
	if code, stdout, _ := asked(somebody+"\n", "reset", "sms-send", "-"); code != command.ExitOK || stdout != "reset\n" {
		t.Errorf("reset: exit code %d, output %q", code, stdout)
	}
	if code, _, _ := asked("", "check", "sms-send", somebody); code != command.ExitOK {
		t.Errorf("check after the reset: exit code %d", code)
	}
	for _, test := range []struct{ name, stdin, want string }{
		{"nothing", "", "there is no identifier on standard input"},
		{"an empty line", "\n", "there is no identifier on standard input"},
		{"two lines", somebody + "\n+4930\n", "more than one line on standard input: give one identifier"},
		{"two lines of a Mac", somebody + "\r+4930", "more than one line"},
		{"far too much", somebody + strings.Repeat("5", 64<<10), "longer than any identifier"},
		{"more than the server takes", somebody + strings.Repeat("5", 2000), "400: identifier: 2014 bytes long: use 1 to 1024"},
		{"no UTF-8", somebody + "\xff", "must be UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := asked(test.stdin, "take", "sms-send", "-")
			if code != command.ExitError || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, somebody) {
				t.Errorf("exit code %d, output %q, errors %q; want %q and no identifier", code, stdout, stderr, test.want)
			}
		})
	}
}

func TestAskEndsWhileStandardInputIsOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	terminal, typed := io.Pipe()
	defer typed.Close() // ends the read
	var stdout, stderr strings.Builder
	code := clitest.Run(ctx, []string{"take", "sms-send", "-"}, nil, terminal, &stdout, &stderr)
	if code != command.ExitError || !strings.Contains(stderr.String(), "interrupted while reading") {
		t.Errorf("exit code %d, errors %q", code, &stderr)
	}
}

// Errors do not repeat the arguments: they may be identifiers.
func TestWrongQuestionsExitWithTwo(t *testing.T) {
	file := clitest.Write(t, "c.yaml", "sever: x\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    string
		want    string
	}{
		{"nobody", nil, "take p", "give POLICY and IDENTIFIER, not 1 argument;"},
		{"a number with spaces", nil, "take p +49 15112345678", "not 3 arguments; one with spaces needs quotes"},
		{"a cost that is no number", nil, "take p i --cost=many", `--cost: "many" is not a whole number`},
		{"a cost of reset", nil, "reset p i --cost=1", "unknown flag: --cost: ratelimitd reset --help lists"},
		{"a hold that is too short", nil, "check p i --reserve=1ms", `--reserve: "1ms" is not a duration from 1s to 1h0m0s`},
		{"a hold by take", nil, "take p i --reserve=30s", "unknown flag: --reserve: "},
		{"a reservation of take", nil, "take p i --reservation=x", "unknown flag: "},
		{"an idempotency key of check", nil, "check p i --idempotency-key=x", "unknown flag: "},
		{"no idempotency key", nil, "take p i --idempotency-key=", "--idempotency-key: use 1 to 255 printable ASCII characters"},
		{"an idempotency key that no header can hold", nil, "take p i --idempotency-key=+15112345678é", "--idempotency-key: use 1 to 255"},
		{"no receipt", nil, "refund", "give one RECEIPT, not 0 arguments"},
		{"two receipts", nil, "refund 15112345678 15112345678", "give one RECEIPT, not 2 arguments"},
		{"a receipt with a dash", nil, "refund -15112345678", "goes after --"},
		{"a cost of refund", nil, "refund r --cost=1", "unknown flag: --cost: ratelimitd refund --help lists"},
		{"a time-out", nil, "take p i --timeout=1h", `--timeout: "1h" is not a duration from 1ms to 1m0s`},
		{"no time-out", nil, "take p i --timeout", "--timeout needs a value"},
		{"a format", nil, "take p i -o 15112345678", "--output: use one of table, json"},
		{"an unknown flag", nil, "take p i --sever=x", "unknown flag: --sever: did you mean --server?"},
		{"a dash", nil, "take p -15112345678", "an identifier that starts with a dash goes after --"},
		{"two dashes", nil, "take p --15112345678", "an identifier that starts with a dash goes after --"},
		{"three dashes", nil, "take p ---15112345678", "an identifier that starts with a dash goes after --"},
		{"a dash and a letter", nil, "take p -o15112345678", "--output: use one of"},
		{"a server without host", nil, "take p i --server=http://", "--server: that is not the URL of a server: use http://HOST:PORT"},
		{"a server of files", nil, "take p i --server=file:///etc", "that is not the URL of a server"},
		{"no URL", nil, "take p i --server=http://a:b", "that is not the URL of a server"},
		{"a password", nil, "take p i --server=http://me:15112345678@host", "do not write a name and a password into the URL"},
		{"a query", nil, "take p i --server=http://host?id=15112345678", "but without ? and #"},
		{"a variable", []string{"RATELIMITD_OUTPUT=yaml"}, "take p i", "environment variable RATELIMITD_OUTPUT: use one of table, json"},
		{"a key of the file", nil, "take p i --config=" + file, "c.yaml:1: sever: unknown key: did you mean server?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := clitest.Execute(t, test.environ, strings.Fields(test.args)...)
			if code != command.ExitError || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "15112345678") {
				t.Errorf("exit code %d, output %q, errors %q; want %q and nothing of an identifier", code, stdout, stderr, test.want)
			}
		})
	}
}

// All commands share the environment and the file. None warns of what another
// reads, or fails over it.
func TestAskSharesSettings(t *testing.T) {
	s := clitest.Start(t, []string{"RATELIMITD_SERVER=http://elsewhere", "RATELIMITD_OUTPUT=json", "RATELIMITD_TIMEOUT=1s",
		"RATELIMITD_COST=2"})
	if log := s.Log.String(); strings.Contains(log, "is not read") {
		t.Errorf("serve warns of a variable of the others:\n%s", log)
	}
	file := clitest.Write(t, "c.yaml", "server: "+s.URL+"\noutput: json\nlisten: 127.0.0.1:1\ncassandra-hosts: [a, b]\n")
	ofServe := []string{"RATELIMITD_LISTEN=:1", "RATELIMITD_STORE=nonsense", "RATELIMITD_CASSANDRA_PASSWORD=x", "RATELIMITD_LOG_LEVEL=debug"}
	for _, test := range []struct {
		name    string
		environ []string
		args    string
		json    bool
	}{
		{"flags", nil, "check login i -o json --server=" + s.URL, true},
		{"no scheme", nil, "check login i --server=" + strings.TrimPrefix(s.URL, "http://"), false},
		{"a slash at the end", nil, "check login i --server=" + s.URL + "/", false},
		{"the environment", []string{"RATELIMITD_SERVER=" + s.URL, "RATELIMITD_OUTPUT=json"}, "check login i", true},
		{"a file", nil, "check login i --config=" + file, true},
		{"a file by the environment", []string{"RATELIMITD_CONFIG=" + file}, "check login i", true},
		{"the environment over a file", []string{"RATELIMITD_OUTPUT=table"}, "check login i --config=" + file, false},
		{"a flag over all", []string{"RATELIMITD_OUTPUT=json"}, "check login i -o table --config=" + file, false},
		{"reset has no output", []string{"RATELIMITD_OUTPUT=json", "RATELIMITD_COST=2"}, "reset login i --config=" + file, false},
		{"after two dashes", nil, "check --server=" + s.URL + " login -- -i", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := clitest.Execute(t, append(test.environ, ofServe...), strings.Fields(test.args)...)
			if code != command.ExitOK || stderr != "" || strings.HasPrefix(stdout, "{") != test.json {
				t.Errorf("exit code %d, output %q, errors %q; want JSON: %v", code, stdout, stderr, test.json)
			}
		})
	}
	code, _, stderr := clitest.Execute(t, []string{"RATELIMITD_SEVER=x"}, "check", "login", "i", "--server", s.URL)
	want := "ratelimitd: environment variable RATELIMITD_SEVER is not read: did you mean RATELIMITD_SERVER?\n"
	if code != command.ExitOK || stderr != want {
		t.Errorf("a variable that nobody reads: exit code %d, errors %q; want %q", code, stderr, want)
	}
}

func TestAskCost(t *testing.T) {
	s := clitest.Start(t, nil)
	for _, test := range []struct {
		args string
		code int
		want string // on standard output, or on standard error with exit code 2
	}{
		{"take login a --cost 4", command.ExitOK, "1 of 5 remaining"},
		{"take login a --cost 2", command.ExitNo, "denied under sliding-log-15m of login: retry after "},
		{"take login a --cost 6", command.ExitError,
			"422: cost: The cost is greater than a limit of this policy can ever hold.\n  Give a smaller"},
		{"take login a --cost 0", command.ExitError, "400: cost: It must be an integer from 1"},
		{"take lgin a", command.ExitError, "404: policy: No policy of that name is in force; GET /v1/policies lists those that are.\n" +
			"  Policy: did you mean login?"},
		{"reset lgin a", command.ExitError, "Policy: did you mean login?"},
	} {
		code, stdout, stderr := clitest.Execute(t, []string{"RATELIMITD_SERVER=" + s.URL}, strings.Fields(test.args)...)
		said, silent := stdout, stderr
		if test.code == command.ExitError {
			said, silent = stderr, stdout
		}
		if code != test.code || silent != "" || !strings.Contains(said, test.want) {
			t.Errorf("%s: exit code %d, output %q, errors %q; want %d and %q", test.args, code, stdout, stderr, test.code, test.want)
		}
	}
}
