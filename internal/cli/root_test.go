package cli_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestHelp(t *testing.T) {
	for _, args := range []string{
		"", "serve", "proxy", "migrate", "policies lint", "policies import-envoy", "key", "check", "record", "take", "reset", "refund", "confirm",
		"health", "override", "override set", "override get", "override delete", "override list", "explain", "shadow",
		"top", "token", "members", "policies",
		"policies show", "policies apply", "policies diff", "policies history", "policies rollback", "policies export",
		"simulate", "version", "help", "completion",
	} {
		name := "help-" + strings.ReplaceAll(strings.TrimSpace("ratelimitd "+args), " ", "-") + ".golden"
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := clitest.Execute(t, nil, append(strings.Fields(args), "--help")...)
			if code != command.ExitOK || stderr != "" {
				t.Errorf("exit code %d, errors %q", code, stderr)
			}
			clitest.Golden(t, name, stdout)
		})
	}
}

func TestWrongCallsExitWithTwo(t *testing.T) {
	config := clitest.Write(t, "c.yaml", "listen: 127.0.0.1:0\nstore: redis\ncassandra-host: a\n")
	twoKeys := clitest.Write(t, "two", "a:00112233445566778899aabbccddeeff\na:00112233445566778899aabbccddeeff\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    string
		want    string
	}{
		{"an unknown command", nil, "sevre", `unknown command "sevre" for "ratelimitd"`},
		{"an unknown command below another", nil, "policies lnit f", `unknown command "lnit" for "ratelimitd policies"`},
		{"an unknown flag", nil, "serve --lisen=x", "unknown flag: --lisen: did you mean --listen?"},
		{"a flag like no other", nil, "serve --bogus", "unknown flag: --bogus: ratelimitd serve --help lists all flags\n"},
		{"a letter", nil, "serve -z", "-z: ratelimitd serve --help lists all flags\n"},
		{"an argument too many", nil, "serve now", `serve takes no arguments, but was given "now": see ratelimitd serve --help`},
		{"help about nothing", nil, "help sevre", `unknown command "sevre" for "ratelimitd": did you mean serve?`},
		{"help about an argument", nil, "help serve now", `unknown command "now" for "ratelimitd serve": there is none below it`},
		{"a word like no command", nil, "bogus", `unknown command "bogus" for "ratelimitd": ratelimitd --help lists all commands`},
		{"a shell there is not", nil, "completion bsh", `unknown command "bsh" for "ratelimitd completion": did you mean bash?`},
		{"a flag of no command", nil, "--hlp", "unknown flag: --hlp: did you mean --help?"},
		{"nobody to make a token for", nil, "token", "give one NAME, not 0 arguments; it is that of the caller, such as shop"},
		{"two files to show", nil, "policies show a b", "give one FILE of policies, or none for the examples, not 2 arguments"},
		{"no file to lint", nil, "policies lint", "give at least one FILE of policies, not 0 arguments"},
		{"a password on the command line", nil, "serve --cassandra-password=x", "did you mean --cassandra-password-file?"},
		{"a store there is not", nil, "serve --store=redis", `"redis" is not known: use one of embedded, cassandra`},
		{"an address that is none", nil, "serve --listen=8080", `"8080" is not an address: use host:port such as 127.0.0.1:8080`},
		{"a level", nil, "serve --consistency=MOST", `"MOST" is not a read level`},
		{"a level for writes", nil, "serve --consistency=ANY", `"ANY" is not a read level`},
		{"a time-out", nil, "serve --store-timeout=1h", `"1h" is not a duration from 1ms to 5s`},
		{"headers", nil, "serve --headers=all", `"all" is not a family of headers`},
		{"a folder for data", nil, "serve --store=cassandra --data-dir=d", "--data-dir is for the store embedded: remove it"},
		{"how often to merge", nil, "serve --sync-interval=1m", `"1m" is not a duration from 10ms to 10s`},
		{"how often to save", nil, "serve --data-sync-interval=1ms", `"1ms" is not a duration from 10ms to 1h0m0s`},
		{"a variable", []string{"RATELIMITD_MAX_KEYS=0"}, "serve",
			`environment variable RATELIMITD_MAX_KEYS: "0" is not a whole number of at least 1`},
		{"a file", nil, "serve --config=" + config, "c.yaml:2: store: \"redis\" is not known"},
		{"a key of the file", nil, "serve --config=" + config, "c.yaml:3: cassandra-host: unknown key: did you mean cassandra-hosts?"},
		{"a file that is not there", nil, "serve --policies=absent.yaml", "reading policies: open absent.yaml"},
		{"policies with mistakes", nil, "serve --policies=tools/testdata/mistakes.yaml", "mistakes.yaml:3: policies[0].limits"},
		{"a receiver of events", nil, "serve --events-url=example.org/events",
			`"--events-url" flag: it is not the URL of a receiver: use one such as https://example.org/events`},
		{"a receiver with a password", nil, "serve --events-url=https://me:secret@example.org", "--events-url: it has a user name or a password"},
		{"a share of denials", nil, "serve --events-denied-share=0.5", `"0.5" is not a percentage: use a whole one from 1% to 100%`},
		{"events without a secret", nil, "serve --events-url=https://example.org",
			"--events-url: events are signed, and there is no secret: give --events-secret-file (or RATELIMITD_EVENTS_SECRET)"},
		{"a secret without events", nil, "serve --events-secret-file=x", "--events-secret-file does nothing without --events-url"},
		{"two secrets of events", []string{"RATELIMITD_EVENTS_SECRET=x"}, "serve --events-url=https://example.org --events-secret-file=x",
			"both RATELIMITD_EVENTS_SECRET and --events-secret-file are set: keep one of them"},
		{"a secret of events that is none", []string{"RATELIMITD_EVENTS_SECRET=x"}, "serve --events-url=https://example.org",
			"RATELIMITD_EVENTS_SECRET: secret 1 is not valid: write whsec_"},
		{"a hash key", nil, "serve --hash-key-file=" + twoKeys, "line 2: a second key"},
		{"TLS by half", nil, "migrate --cassandra-tls-ca=ca.pem", "does nothing without --cassandra-tls"},
		{"a name without password", nil, "migrate --cassandra-username=me", "need each other"},
		{"two passwords", []string{"RATELIMITD_CASSANDRA_PASSWORD=x"}, "migrate --cassandra-username=me --cassandra-password-file=f",
			"keep one of them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := clitest.Execute(t, test.environ, strings.Fields(test.args)...)
			if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, output %q, errors:\n%s\nwant %q in them", code, stdout, stderr, test.want)
			}
		})
	}
}

// TestHelpIsTheSame by every way to ask for it.
func TestHelpIsTheSame(t *testing.T) {
	for _, args := range []string{"", "serve", "override", "override set"} {
		words := strings.Fields(args)
		_, want, _ := clitest.Execute(t, nil, append(words, "--help")...)
		if code, stdout, stderr := clitest.Execute(t, nil, append([]string{"help"}, words...)...); code != command.ExitOK || stdout != want {
			t.Errorf("help %s: exit code %d, errors %q, output\n%s\nwant\n%s", args, code, stderr, stdout, want)
		}
	}
	_, want, _ := clitest.Execute(t, nil, "--help")
	if code, stdout, _ := clitest.Execute(t, nil); code != command.ExitOK || stdout != want {
		t.Errorf("no arguments: exit code %d, output\n%s\nwant\n%s", code, stdout, want)
	}
}
