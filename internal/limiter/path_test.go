package limiter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPathOfATake holds how far a reader has to travel from Engine.Take to its answer: the files and functions that one take
// of a plain log enters. Of a take by an owner they end at the store's interface, behind which is Cassandra in a service; the
// embedded store is counted where it is what decides. Before you raise these bounds, ask what else could go.
func TestPathOfATake(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "take")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=../...", "-o", program, "./testdata/take")
	t.Setenv("GOCOVERDIR", t.TempDir())
	run(t, program, folder)
	for _, c := range []struct {
		name             string
		files, functions int // at most
	}{
		{"embedded/allowed", 11, 47},
		{"embedded/denied", 11, 42},
		{"owner/allowed", 14, 70},
		{"owner/denied", 14, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := make(map[string]bool)
			entered := functions(t, filepath.Join(folder, c.name))
			if strings.HasPrefix(c.name, "owner/") {
				entered = slices.DeleteFunc(entered, func(f string) bool { return strings.HasPrefix(f, "embedded/") })
			}
			for _, f := range entered {
				file, _, _ := strings.Cut(f, ":")
				files[file] = true
			}
			list := strings.Join(entered, "\n")
			if len(files) > c.files || len(entered) > c.functions {
				t.Errorf("%d files and %d functions, want at most %d and %d:\n%s", len(files), len(entered), c.files, c.functions, list)
			}
			if !strings.Contains(list, "take.go: *Engine.Take") {
				t.Errorf("no Take among\n%s", list)
			}
			t.Logf("%d files and %d functions:\n%s", len(files), len(entered), list)
		})
	}
}

// entered is a line of covdata about a function that was entered: its file below internal, its name, and how much of
// it was run.
var entered = regexp.MustCompile(`(?m)^\S*/internal/(\S+\.go):\d+:\s+(\S+)\s+([1-9]\d*\.\d|0\.[1-9])%$`)

// functions returns the functions that were entered by what folder is of, each as "file: name".
func functions(t *testing.T, folder string) (all []string) {
	t.Helper()
	for _, f := range entered.FindAllStringSubmatch(run(t, "go", "tool", "covdata", "func", "-i="+folder), -1) {
		if !strings.Contains(f[1], "testdata/") {
			all = append(all, f[1]+": "+f[2])
		}
	}
	return all
}

// run returns what a command prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}
