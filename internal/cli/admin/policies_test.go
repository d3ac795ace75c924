package admin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const (
	tenOfOne = "policies:\n  - {name: one, limits: [{name: l, algorithm: sliding-log, limit: 10, window: 1h}]}\n"
	twenty   = "policies:\n  - {name: one, limits: [{name: l, algorithm: sliding-log, limit: 20, window: 1h}]}\n" +
		"  - {name: two, limits: [{name: l, algorithm: sliding-log, limit: 5, window: 1h}]}\n"
)

// TestPoliciesInTheStore applies policies, looks at them, changes them and rolls that back; and again after a restart.
func TestPoliciesInTheStore(t *testing.T) {
	folder := t.TempDir()
	audit := filepath.Join(folder, "audit.json")
	flags := []string{"--audit-log=" + audit, "--data-dir=" + filepath.Join(folder, "data")}
	s := clitest.Start(t, nil, flags...)
	ten, more := clitest.Write(t, "ten.yaml", tenOfOne), clitest.Write(t, "twenty.yaml", twenty)
	wrong := clitest.Write(t, "wrong.yaml", "policies:\n  - {name: one, limits: [{algorithm: sliding-lag, limit: 10, window: 1h}]}\n")
	tell := func(args string, code int, says string) {
		t.Helper()
		got, stdout, stderr := clitest.Execute(t, nil, append(strings.Fields(args), "--server", s.URL)...)
		if said := stdout + stderr; got != code || !strings.Contains(said, says) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", args, got, code, says, said)
		}
	}
	tell("policies history", command.ExitOK, "no versions")
	tell("policies export", command.ExitError, "has no version of the policies")
	tell("take login a", command.ExitOK, "") // of the examples
	tell("policies diff "+ten, command.ExitNo, "+ one\n")
	tell("policies apply "+wrong, command.ExitUsage, `wrong.yaml:2: policies[0].limits[0].algorithm: "sliding-lag" is not an algorithm`)
	tell("policies apply "+ten, command.ExitOK, "version 1: 1 policy, in force")
	tell("take one a", command.ExitOK, "9 of 10 remaining")
	tell("take login a", command.ExitError, "No policy of that name")
	tell("policies apply "+ten, command.ExitOK, "version 1 has the same text: nothing changed")
	tell("policies diff "+ten, command.ExitOK, "")
	tell("policies diff "+more, command.ExitNo, "+ two\n~ one: l limit 10 -> 20\n")
	tell("policies apply "+more, command.ExitOK, "version 2: 2 policies, in force")
	tell("take one a", command.ExitOK, "18 of 20 remaining") // counts stay
	tell("policies apply "+ten+" --replaces 1", command.ExitError, "another version of the policies is the latest now: nothing changed")
	tell("policies show --version 1", command.ExitOK, tenOfOne)
	tell("policies show --version 3", command.ExitError, "keeps no such version")
	tell("policies export", command.ExitOK, twenty)
	tell("policies rollback 1", command.ExitOK, "version 3: 1 policy, in force")
	tell("take one a", command.ExitOK, "7 of 10 remaining")
	tell("policies history", command.ExitOK, "anonymous  1         ")
	s.Stop()
	s.Wait(t)
	s = clitest.Start(t, nil, flags...)
	tell("policies export", command.ExitOK, tenOfOne)
	tell("take one a", command.ExitOK, "6 of 10 remaining")
	s.Stop()
	s.Wait(t)
	s = clitest.Start(t, nil, append(flags, "--policies="+more)...)
	s.Log.WaitFor(t, "the policies of --policies are in force here, not those in the store", 1)
	tell("take two a", command.ExitOK, "4 of 5 remaining")
	tell("policies rollback 2", command.ExitError, "409: This server was given --policies")
	tell("policies export", command.ExitOK, tenOfOne)

	acts, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"act":"policies.apply","who":"anonymous","outcome":"done","version":2,"digest":"`,
		`"replaced":1,"added":["two"],"changed":["one: l limit 10 -> 20"]`,
		`"act":"policies.apply","who":"anonymous","outcome":"failed","status":412`,
	} {
		if !strings.Contains(string(acts), want) {
			t.Errorf("no %s in the audit log:\n%s", want, acts)
		}
	}
}
