package tools_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestKey distinguishes keys by all their parts, and names a missing one.
func TestKey(t *testing.T) {
	hashKey := clitest.Write(t, "key", "k:00112233445566778899aabbccddeeff\n")
	seen := make(map[string][]string)
	for _, flags := range [][]string{
		{}, {"--namespace", "mine"}, {"--hash-key-file", hashKey},
		{"--store", "cassandra", "--cassandra-datacenter", "a"}, {"--store", "cassandra", "--cassandra-datacenter", "b"},
		{"--store", "cassandra", "--consistency", "QUORUM"},
	} {
		code, stdout, stderr := clitest.Execute(t, nil, append([]string{"key", "login", "alice"}, flags...)...)
		if code != command.ExitOK || len(stdout) != 65 {
			t.Errorf("%v: exit code %d, output %q, errors %q", flags, code, stdout, stderr)
		}
		seen[stdout] = append(seen[stdout], strings.Join(flags, " "))
	}
	if len(seen) != 5 { // a promise over the cluster has the key that one copy has
		t.Errorf("%q", seen)
	}
	local := clitest.Write(t, "policies.yaml",
		"policies: [{name: otp, guarantee: local, limits: [{algorithm: sliding-log, limit: 5, window: 1h}]}]\n")
	for _, datacenter := range []string{"a", "b"} {
		code, stdout, stderr := clitest.Execute(t, nil,
			"key", "otp", "alice", "--policies", local, "--store", "cassandra", "--cassandra-datacenter", datacenter)
		if code != command.ExitOK || len(stdout) != 65 || seen[stdout] != nil {
			t.Errorf("under guarantee local: exit code %d, output %q, errors %q", code, stdout, stderr)
		}
		seen[stdout] = []string{datacenter}
	}
	for want, args := range map[string][]string{
		"give --cassandra-datacenter":  {"login", "4915112345678", "--store", "cassandra"},
		"policy otp: give --cassandra": {"otp", "4915112345678", "--store", "cassandra", "--policies", local},
		"unknown policy":               {"logon", "4915112345678"},
		"give POLICY and IDENTIFIER":   {"login"},
		"1 to 1024":                    {"login", ""},
		"there is no identifier on st": {"login", "-"},
	} {
		code, stdout, stderr := clitest.Execute(t, nil, append([]string{"key"}, args...)...)
		if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Contains(stderr, "4915112345678") {
			t.Errorf("%v: exit code %d, output %q, errors %q", args, code, stdout, stderr)
		}
	}
}
