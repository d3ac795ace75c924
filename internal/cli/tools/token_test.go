package tools_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/tools"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// TestTokenAsDocumented runs the example of the help by a shell, twice, and serves with the resulting file.
func TestTokenAsDocumented(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(example(t, "token")), "\n")
	folder, bin := t.TempDir(), t.TempDir()
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, "ratelimitd")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop", "bank"} {
		command := strings.ReplaceAll(strings.TrimSpace(lines[len(lines)-1]), "shop", name)
		shell := exec.Command("sh", "-c", command)
		shell.Dir = folder
		shell.Env = append(clitest.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := shell.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	s := clitest.Start(t, nil, "--auth-file="+filepath.Join(folder, "callers.yaml"))
	for _, name := range []string{"shop", "bank"} {
		path := filepath.Join(folder, name+".token")
		token, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		if status := s.Asked(t, strings.TrimSpace(string(token))); status != 200 {
			t.Errorf("%s is answered %d", name, status)
		}
	}
}

// TestTokenLeavesOddFilesAlone adds no line where it would make a file that serve refuses.
func TestTokenLeavesOddFilesAlone(t *testing.T) {
	one := "  - {name: one, certificate: a, scopes: [decide]}"
	for name, c := range map[string]struct {
		file, want string // the error; empty: none
	}{
		"nothing":        {"", ""},
		"no line's end":  {"callers:\n" + one, ""},
		"another column": {"callers:\n- {name: one, certificate: a, scopes: [decide]}\n", "stays as it is"},
		"the same name":  {"callers:\n" + strings.Replace(one, "one", "shop", 1) + "\n", "names the caller on line 2 too"},
		"something else": {"policies: []\n", "stays as it is"},
	} {
		path := clitest.Write(t, "callers.yaml", c.file)
		var out, errs bytes.Buffer
		code := clitest.Run(context.Background(), []string{"token", "shop", "--auth-file", path}, nil, strings.NewReader(""), &out, &errs)
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && (code != command.ExitOK || out.Len() == 0 || !strings.HasPrefix(string(after), c.file)) {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, &errs, after)
		}
		if c.want != "" && (code == command.ExitOK || out.Len() > 0 || !strings.Contains(errs.String(), c.want) || string(after) != c.file) {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, &errs, after)
		}
	}
}

// TestATokenIsForPolicies that its line names, or for any, which the line says.
func TestATokenIsForPolicies(t *testing.T) {
	for flag, want := range map[string]string{
		"": "policies: any}", "--policies=any": "policies: any}", "--policies=api,login": "policies: [api, login]}",
	} {
		var token, line bytes.Buffer
		args := strings.Fields("token shop " + flag)
		code := clitest.Run(context.Background(), args, nil, strings.NewReader(""), &token, &line)
		if code != command.ExitOK || !strings.Contains(line.String(), want) {
			t.Errorf("%s: %s", flag, line.String())
		}
	}
}

func example(t *testing.T, name string) string {
	t.Helper()
	for _, cmd := range tools.Commands(new(command.Process)) {
		if cmd.Name() == name {
			return cmd.Example
		}
	}
	t.Fatalf("there is no command %s", name)
	return ""
}
