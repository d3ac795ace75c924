package docs_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/ratelimitd/ratelimitd/"

// TestPackagesAreUpToDate compares contributing/packages.md with the existing packages.
func TestPackagesAreUpToDate(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(`# Packages

<!-- Made from the packages and their comments: go test ./docs -run UpToDate -update -->

Each package, its imports of this project, and what it is. [Where something new goes](../../CONTRIBUTING.md#where-something-new-goes).
`)
	for _, part := range []struct{ title, folder, patterns string }{
		{"The program", ".", "./cmd/..."}, {"The service", ".", "./internal/..."},
		{"For Go programs", ".", module + "client/... ./inprocess ./ratelimittest"}, {"The tables", ".", "./schema/..."},
		{"Faults, a module of its own", "internal/faults", "./..."},
		{"Broken builds, a module of their own", "internal/broken", "./..."},
	} {
		fmt.Fprintf(b, "\n## %s\n\n| package | imports | |\n|---|---|---|\n", part.title)
		for _, line := range strings.Split(strings.TrimSpace(packagesOf(t, part.folder, part.patterns)), "\n") {
			path, rest, _ := strings.Cut(line, "\t")
			imports, doc, _ := strings.Cut(rest, "\t")
			if strings.HasSuffix(path, "pb") {
				continue // generated
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimPrefix(path, module), ownOf(imports), whatItIs(doc))
		}
	}
	compare(t, "contributing/packages.md", b.String())
}

// packagesOf returns a line for each package of the module in folder: its path, its imports with spaces between,
// and the first sentence of its comment.
func packagesOf(t *testing.T, folder, patterns string) string {
	t.Helper()
	format := "{{.ImportPath}}\t{{join .Imports \" \"}}\t{{.Doc}}"
	list := exec.Command("go", append([]string{"list", "-f", format}, strings.Fields(patterns)...)...)
	list.Dir = filepath.Join("..", folder)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// ownOf returns the imports within this project, by their short names.
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
