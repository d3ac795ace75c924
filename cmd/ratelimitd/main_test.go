package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// beMain makes the test binary the program itself, for the tests of signals.
const beMain = "BE_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
		return
	}
	cassandratest.Main(m)
}

// execute runs a command line that ends by itself.
func execute(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return executeWith(t, strings.NewReader(""), environ, args...)
}

// executeWith is execute with something on standard input.
func executeWith(t *testing.T, stdin io.Reader, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), args, environ, stdin, &out, &err)
	return code, out.String(), err.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant as in %s:\n%s", got, file, want)
	}
}

func writeFile(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelp(t *testing.T) {
	for _, args := range []string{
		"", "serve", "proxy", "migrate", "policies lint", "policies import-envoy", "key", "check", "record", "take", "reset", "refund",
		"override", "override set", "override get", "override list", "explain", "token",
	} {
		name := "help-" + strings.ReplaceAll(strings.TrimSpace("ratelimitd "+args), " ", "-") + ".golden"
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := execute(t, nil, append(strings.Fields(args), "--help")...)
			if code != exitOK || stderr != "" {
				t.Errorf("exit code %d, errors %q", code, stderr)
			}
			golden(t, name, stdout)
		})
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := execute(t, nil, "version")
	if code != exitOK || !strings.HasPrefix(stdout, "ratelimitd ") || !strings.Contains(stdout, " go1.") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	if _, flag, _ := execute(t, nil, "--version"); flag != stdout {
		t.Errorf("--version prints %q, version %q", flag, stdout)
	}
}

func TestPoliciesLint(t *testing.T) {
	code, stdout, stderr := execute(t, nil, "policies", "lint", "testdata/mistakes.yaml", "testdata/fine.yaml", "testdata/absent.yaml")
	if code != exitUsage || stderr != "ratelimitd: mistakes in 2 files\n" {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	golden(t, "lint.golden", stdout)
	code, stdout, stderr = execute(t, nil, "policies", "lint", "testdata/fine.yaml")
	if code != exitOK || stdout != "testdata/fine.yaml: no mistakes in 1 policy\n" || stderr != "" {
		t.Errorf("a file without mistakes: exit code %d, output %q, errors %q", code, stdout, stderr)
	}
}

func TestPoliciesShow(t *testing.T) {
	code, stdout, stderr := execute(t, nil, "policies", "show", "testdata/fine.yaml")
	if code != exitOK || stderr != "" {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	golden(t, "show.golden", stdout)
	_, examples, _ := execute(t, nil, "policies", "show")
	again := writeFile(t, "examples.yaml", examples)
	if code, stdout, _ = execute(t, nil, "policies", "show", again); code != exitOK || stdout != examples {
		t.Errorf("the examples, printed and read again: exit code %d\n%s\nwant\n%s", code, stdout, examples)
	}
	if code, stdout, _ = execute(t, nil, "policies", "show", "testdata/mistakes.yaml"); code != exitUsage || stdout != "" {
		t.Errorf("a file with mistakes: exit code %d, output %q", code, stdout)
	}
}

func TestWrongCallsExitWithTwo(t *testing.T) {
	config := writeFile(t, "c.yaml", "listen: 127.0.0.1:0\nstore: redis\ncassandra-host: a\n")
	twoKeys := writeFile(t, "two", "a:00112233445566778899aabbccddeeff\na:00112233445566778899aabbccddeeff\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    string
		want    string
	}{
		{"an unknown command", nil, "sevre", `unknown command "sevre" for "ratelimitd"`},
		{"an unknown command below another", nil, "policies lnit f", `unknown command "lnit" for "ratelimitd policies"`},
		{"an unknown flag", nil, "serve --lisen=x", "unknown flag: --lisen: did you mean --listen?"},
		{"a flag like no other", nil, "serve --bogus", "unknown flag: --bogus: ratelimitd serve --help lists those there are\n"},
		{"a letter", nil, "serve -z", "-z: ratelimitd serve --help lists those there are\n"},
		{"an argument too many", nil, "serve now", `unknown command "now" for "ratelimitd serve"`},
		{"no file to lint", nil, "policies lint", "requires at least 1 arg(s)"},
		{"a password on the command line", nil, "serve --cassandra-password=x", "did you mean --cassandra-password-file?"},
		{"a store there is not", nil, "serve --store=redis", `"redis" is not known: use one of embedded, cassandra`},
		{"an address that is none", nil, "serve --listen=8080", `"8080" is no address: use host:port such as 127.0.0.1:8080`},
		{"a level", nil, "serve --consistency=MOST", `"MOST" is no read level`},
		{"a level for writes", nil, "serve --consistency=ANY", `"ANY" is no read level`},
		{"a time-out", nil, "serve --store-timeout=1h", `"1h" is no duration from 1ms to 5s`},
		{"headers", nil, "serve --headers=all", `"all" is no family of headers`},
		{"a folder for data", nil, "serve --store=cassandra --data-dir=d", "--data-dir is for the store embedded: remove it"},
		{"how often to merge", nil, "serve --sync-interval=1m", `"1m" is no duration from 10ms to 10s`},
		{"how often to save", nil, "serve --data-sync-interval=1ms", `"1ms" is no duration from 10ms to 1h0m0s`},
		{"a variable", []string{"RATELIMITD_MAX_KEYS=0"}, "serve",
			`environment variable RATELIMITD_MAX_KEYS: "0" is no whole number of at least 1`},
		{"a file", nil, "serve --config=" + config, "c.yaml:2: store: \"redis\" is not known"},
		{"a key of the file", nil, "serve --config=" + config, "c.yaml:3: cassandra-host: unknown key: did you mean cassandra-hosts?"},
		{"a file that is not there", nil, "serve --policies=absent.yaml", "reading policies: open absent.yaml"},
		{"policies with mistakes", nil, "serve --policies=testdata/mistakes.yaml", "testdata/mistakes.yaml:3: policies[0].limits"},
		{"a hash key", nil, "serve --hash-key-file=" + twoKeys, "line 2: a second key"},
		{"TLS by half", nil, "migrate --cassandra-tls-ca=ca.pem", "does nothing without --cassandra-tls"},
		{"a name without password", nil, "migrate --cassandra-username=me", "need each other"},
		{"two passwords", []string{"RATELIMITD_CASSANDRA_PASSWORD=x"}, "migrate --cassandra-username=me --cassandra-password-file=f",
			"keep one of them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := execute(t, test.environ, strings.Fields(test.args)...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, output %q, errors:\n%s\nwant %q in them", code, stdout, stderr, test.want)
			}
		})
	}
}

func TestClockTolerance(t *testing.T) {
	for _, test := range []struct {
		args string
		want time.Duration
	}{
		{"", 0}, // embedded: one clock
		{"--clock-tolerance=20ms", 20 * time.Millisecond},
		{"--store=cassandra", 100 * time.Millisecond},
		{"--store=cassandra --clock-tolerance=1ms", time.Millisecond},
	} {
		s, cmd := new(settings), new(cobra.Command)
		s.addCommonFlags(cmd.Flags())
		s.addServeFlags(cmd.Flags())
		if err := cmd.Flags().Parse(strings.Fields(test.args)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.load(cmd, nil); err != nil || s.clockTolerance != test.want {
			t.Errorf("%q: %v, %v; want %v", test.args, s.clockTolerance, err, test.want)
		}
	}
}

func TestHashKey(t *testing.T) {
	const hex = "00112233445566778899aabbccddeeff"
	for _, test := range []struct {
		name, text string
		id         string // of the key; empty: there is an error
		bytes      int
		want       string // in the error
	}{
		{"hex", "2026-01:" + hex + "\n", "2026-01", 16, ""},
		{"base64", "# ours\n\nk : ABEiM0RVZneImaq7zN3u/w==\r\n", "k", 16, ""},
		{"base64 without padding", "k:ABEiM0RVZneImaq7zN3u/w", "k", 16, ""},
		{"nothing", "# soon\n", "", 0, "there is no key in it"},
		{"no colon", hex, "", 0, "line 1: no colon: write id:key"},
		{"no id", ":" + hex, "", 0, "line 1: the id before the colon is none"},
		{"a short key", "\nk:0011\n", "", 0, "line 2: key k has 2 bytes: at least 16 are needed"},
		{"a word", "k:secret words!", "", 0, "neither hex nor standard base64"},
		{"two of a name", "a:" + hex + "\n\na:" + hex, "", 0, "line 3: a second key called a"},
		{"four", "a:" + hex + "\nb:" + hex + "\nc:" + hex + "\nd:" + hex, "", 0, "line 4: more than 3 keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := parseHashKeys([]byte(test.text))
			if test.id == "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret words") {
					t.Errorf("error is %v, want %q in it and nothing of the key", err, test.want)
				}
				return
			}
			if err != nil || keys[0].ID != test.id || len(keys[0].Secret) != test.bytes || keys[0].Secret[1] != 0x11 {
				t.Errorf("keys are %+v, %v; want %d bytes called %q", keys, err, test.bytes, test.id)
			}
		})
	}
}

// The first key of the file is written with, the others are read as well.
func TestHashKeysInTheirOrder(t *testing.T) {
	const hex = "00112233445566778899aabbccddeeff"
	keys, err := parseHashKeys([]byte("new:" + hex + "\nold:" + hex))
	if err != nil {
		t.Fatal(err)
	}
	first, others := keyers("n", keys)
	if first.Secret.ID != "new" || len(others) != 1 || others[0].Secret.ID != "old" || others[0].Namespace != "n" {
		t.Errorf("written with %+v, read with %+v", first, others)
	}
	if first, others := keyers("n", nil); first.Secret != nil || others != nil {
		t.Errorf("without keys: %+v and %+v", first, others)
	}
}
