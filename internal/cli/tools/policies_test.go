package tools_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestPoliciesLint(t *testing.T) {
	code, stdout, stderr := clitest.Execute(t, nil, "policies", "lint", "testdata/mistakes.yaml", "testdata/fine.yaml", "testdata/absent.yaml")
	if code != command.ExitUsage || stderr != "ratelimitd: mistakes in 2 files\n" {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	clitest.Golden(t, "lint.golden", stdout)
	code, stdout, stderr = clitest.Execute(t, nil, "policies", "lint", "testdata/fine.yaml")
	if code != command.ExitOK || stdout != "testdata/fine.yaml: no mistakes in 1 policy\n" || stderr != "" {
		t.Errorf("a file without mistakes: exit code %d, output %q, errors %q", code, stdout, stderr)
	}
}

func TestPoliciesShow(t *testing.T) {
	code, stdout, stderr := clitest.Execute(t, nil, "policies", "show", "testdata/fine.yaml")
	if code != command.ExitOK || stderr != "" {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	clitest.Golden(t, "show.golden", stdout)
	_, examples, _ := clitest.Execute(t, nil, "policies", "show")
	again := clitest.Write(t, "examples.yaml", examples)
	if code, stdout, _ = clitest.Execute(t, nil, "policies", "show", again); code != command.ExitOK || stdout != examples {
		t.Errorf("the examples, printed and read again: exit code %d\n%s\nwant\n%s", code, stdout, examples)
	}
	if code, stdout, _ = clitest.Execute(t, nil, "policies", "show", "testdata/mistakes.yaml"); code != command.ExitUsage || stdout != "" {
		t.Errorf("a file with mistakes: exit code %d, output %q", code, stdout)
	}
}
