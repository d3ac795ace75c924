package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/ratelimitd/ratelimitd/"

// TestRoomsAreUpToDate compares reference/rooms.md with the packages that there are.
func TestRoomsAreUpToDate(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(`# Rooms

<!-- Made from the packages and their comments: go test ./docs -run UpToDate -update -->

Each package, which others of this project it imports, and what its comment says of it. [Where something new goes](../design/rooms.md).
`)
	for _, part := range []struct{ title, pattern string }{
		{"The program", "./cmd/..."}, {"The service", "./internal/..."}, {"For Go programs", "./client/..."}, {"The tables", "./schema/..."},
	} {
		fmt.Fprintf(b, "\n## %s\n\n| package | imports | |\n|---|---|---|\n", part.title)
		for _, line := range strings.Split(strings.TrimSpace(packagesOf(t, part.pattern)), "\n") {
			path, rest, _ := strings.Cut(line, "\t")
			imports, doc, _ := strings.Cut(rest, "\t")
			if strings.HasSuffix(path, "pb") {
				continue // generated
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimPrefix(path, module), ownOf(imports), whatItIs(doc))
		}
	}
	compare(t, "reference/rooms.md", b.String())
}

// TestNoRoomIsTooLarge holds each package, but for its tests, to what somebody can read in a day.
func TestNoRoomIsTooLarge(t *testing.T) {
	const most = 3000 // lines
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}} {{join .GoFiles \" \"}}", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		parts := strings.Fields(line)
		lines := 0
		for _, name := range parts[2:] {
			code, err := os.ReadFile(filepath.Join(parts[1], name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(code, []byte("\n"))
		}
		if lines > most && !strings.HasSuffix(parts[0], "pb") { // which is generated
			t.Errorf("%s has %d lines, which is more than %d", strings.TrimPrefix(parts[0], module), lines, most)
		}
	}
}

// packagesOf returns a line for each package: its path, its imports with spaces between,
// and the first sentence of its comment.
func packagesOf(t *testing.T, pattern string) string {
	t.Helper()
	list := exec.Command("go", "list", "-f", "{{.ImportPath}}\t{{join .Imports \" \"}}\t{{.Doc}}", pattern)
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// ownOf returns those of imports that are of this project, by their short names.
func ownOf(imports string) string {
	var own []string
	for _, path := range strings.Fields(imports) {
		if name, found := strings.CutPrefix(path, module); found && !strings.HasSuffix(name, "pb") {
			own = append(own, strings.TrimPrefix(name, "internal/"))
		}
	}
	return strings.Join(own, ", ")
}

// whatItIs returns the first sentence of a package's comment without "Package name".
func whatItIs(doc string) string {
	words := strings.SplitN(strings.TrimRight(doc, ".:"), " ", 3)
	return strings.ReplaceAll(words[len(words)-1], "|", `\|`)
}
