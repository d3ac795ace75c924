package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "update the outputs in README.md")

var (
	console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	typed   = regexp.MustCompile(`(?m)^\$ (.*)\n((?:[^$\n].*\n|\n)*)`)
	hash    = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
)

// TestReadmePrintsWhatItShows runs the commands of README.md, and compares their output. The
// hashes of callers differ each time.
func TestReadmePrintsWhatItShows(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/ratelimitd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := copied(t)
	commands := 0
	got := console.ReplaceAllStringFunc(string(text), func(block string) string {
		return typed.ReplaceAllStringFunc(block, func(found string) string {
			parts := typed.FindStringSubmatch(found)
			cmd := exec.Command("bash", "-c", parts[1])
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("$ %s\n%v\n%s", parts[1], err, out)
			}
			commands++
			if hash.ReplaceAllString(parts[2], "KEY") == hash.ReplaceAllString(string(out), "KEY") {
				return found
			}
			if !*update {
				t.Errorf("$ %s\nprints\n%s\nand the page shows\n%s", parts[1], out, parts[2])
			}
			return "$ " + parts[1] + "\n" + string(out)
		})
	})
	if *update {
		if err := os.WriteFile("README.md", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "report.html")); commands < 4 || err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("%d commands run, %v", commands, err)
	}
}

// copied returns a copy of this folder, in which the commands create more files.
func copied(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	names, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "../../go.mod") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
