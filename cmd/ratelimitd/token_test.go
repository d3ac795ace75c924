package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenAsDocumented runs the example of the help by a shell, twice, and serves what it made.
func TestTokenAsDocumented(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(newToken().Example), "\n")
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
		shell.Env = append(os.Environ(), beMain+"=1", "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := shell.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	s := start(t, nil, "--auth-file="+filepath.Join(folder, "callers.yaml"))
	for _, name := range []string{"shop", "bank"} {
		path := filepath.Join(folder, name+".token")
		token, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		if status := s.asked(t, strings.TrimSpace(string(token))); status != 200 {
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
		path := write(t, "callers.yaml", c.file)
		var out, errs bytes.Buffer
		code := run(context.Background(), []string{"token", "shop", "--auth-file", path}, nil, strings.NewReader(""), &out, &errs)
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && (code != exitOK || out.Len() == 0 || !strings.HasPrefix(string(after), c.file)) {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, &errs, after)
		}
		if c.want != "" && (code == exitOK || out.Len() > 0 || !strings.Contains(errs.String(), c.want) || string(after) != c.file) {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, &errs, after)
		}
	}
}
